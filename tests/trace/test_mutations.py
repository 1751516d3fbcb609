"""Mutated traces end in facts or in one clean line: never in a traceback, never in more than 2 GB.

UNDERFED_MUTATIONS sets how many are tried; the slow form tries 10,000.
"""

from __future__ import annotations

import gzip
import os
import random
import re
import resource

import msgspec
import pytest
from trace_oracle import SHARED

from underfed.diagnosis import from_json, to_json
from underfed.errors import UnderfedError
from underfed.timeline.ranks import skew_of
from underfed.trace import rank_facts
from underfed.trace.meaning import diagnosis_of

SEEDS = (
    "zoo/tiny_ops/after/trace.json.gz",
    "traces/hta/amd_trace__mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "traces/hta/critical_path__cuda_event_sync_multi_stream__event_sync_trace.json.gz",
    "traces/hta/call_stack__backward_thread.json",
    "traces/tracelens/inference__vllm_decode_full__graph_execution.json.gz",
    "traces/param/dlrm_8rank_worker0.json.gz",
)
WRONG = (
    b"null", b"NaN", b"-Infinity", b"1e400", b"-1", b"0", b"9" * 40, b"9" * 5000, b'"7"', b'"x"', b"true", b"[]", b"{}",
    b'[{"ph": "X"}, {"ph": "X"}]', b'{"device": {}}', b"\x00", b"", b"1.7976931348623157e308", b'"\xff\xfe"',
    b"9223372036854775807",
)  # fmt: skip
VALUE = re.compile(rb'(?<=": )("[^"\n]{0,80}"|-?[0-9.]+)')
HERE = [SHARED / name for name in SEEDS]


def raw(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def mutate(data: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(8)
    at = rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        changed = bytearray(data)
        for _ in range(rng.randrange(1, 40)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 3000) :]
    if kind == 3:
        return data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 50))) + data[at:]
    if kind == 4:
        other = rng.randrange(len(data))
        return data[:at] + data[other:]
    if kind == 5:
        mark = rng.choice((b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\"))
        return data[:at] + mark * rng.choice((1, 2, 3000)) + data[at:]
    values = list(VALUE.finditer(data, max(0, at - 20_000), min(len(data), at + 20_000)))
    changed = data
    for found in sorted(rng.sample(values, min(len(values), rng.randrange(1, 30))), key=lambda m: -m.start()):
        changed = changed[: found.start()] + rng.choice(WRONG) + changed[found.end() :]
    return changed


def attempt(path, count, seed):
    outcomes = {"facts": 0, "refused": 0}
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        source = HERE[rng.randrange(len(HERE))]
        packed = rng.random() < 0.25
        data = raw(source)
        changed = mutate(gzip.compress(data, 1), rng) if packed else mutate(data, rng)
        path.write_bytes(changed)
        try:
            facts = rank_facts(path, what_if=True)[0]
        except UnderfedError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
            continue
        except Exception as error:
            raise AssertionError(f"mutation {number} of seed {seed} ({source.name}) ended in a traceback") from error
        outcomes["facts"] += 1
        check_diagnosis(facts)
        for device in facts.devices:
            assert 0 <= device.totals.busy_ns <= device.totals.span_ns
            assert sum(device.idle_ns.values()) + device.region_busy_ns == device.region_ns
            assert min(device.idle_ns.values()) >= 0
        assert msgspec.json.decode(msgspec.json.encode(facts), type=type(facts)) == facts
    return outcomes


def check_replays(facts):
    for one in facts.what_if.causes if facts.what_if else ():
        assert 0 <= one.best_ns <= one.now_ns
        assert one.at_most >= 1
        if one.expected is not None:
            assert 1 <= one.expected[0] <= one.expected[1] <= one.at_most


def check_diagnosis(facts):
    check_replays(facts)
    found = diagnosis_of([facts], ["mutated.json"])
    assert from_json(to_json(found)) == found
    path = facts.main and facts.main.path
    if path is not None:
        assert sum(path.by_class.values()) == path.span_ns
        assert min(path.by_class.values(), default=0) >= 0
    if facts.log is not None:
        skew = skew_of([facts.log, facts.log], [0, 1])
        assert skew is None or skew.caused_ns == 0


def check(tmp_path, count, seed):
    if not all(path.is_file() for path in HERE):
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    outcomes = attempt(tmp_path / "mutated.json", count, seed)
    assert outcomes["facts"] > count // 3
    assert outcomes["refused"] > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20


def test_mutated_traces_end_in_facts_or_one_line(tmp_path):
    check(tmp_path, int(os.environ.get("UNDERFED_MUTATIONS", "150")), seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_mutations(tmp_path, part):
    check(tmp_path, 1_000, seed=2 + part)

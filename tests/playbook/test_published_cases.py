"""Published cases at a run's evidence: those that a CPU can show are found there, and those that misled are not.

Their source code is judged in tests/audit/test_cases.py; here stands what a run of them shows.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from kernels_help import PLAIN, WHOLE
from rule_cases import FOUR_CPUS, SPEAKS, STORE, computing, fed, launching
from scenes import busy

from underfed.diagnose.assemble import findings_of, ranked
from underfed.diagnose.budget import gpu_budget, host_time
from underfed.playbook.evidence import Copy, Evidence
from underfed.playbook.registry import find

ROOT = Path(__file__).resolve().parents[2]
#: Case, and the planted script that is a run of it, with the rules that may name it. Their recordings are scored.
RUNS = {
    "W02": ("read_from_store", {"T4", "T8", "U8"}),
    "W21": ("short_epochs_spawn", {"T5"}),
    "X01": ("tokenise_in_getter", {"T8"}),
    "X02": ("tabular_rows", {"T8"}),
    "D01": ("anomaly_left_on", {"T12"}),
    "A01": ("attention_weights", {"T14"}),
    "N01": ("ddp_no_sync", {"T23"}),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_run_of_an_open_case_names_its_cause_first(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench/score"))
    import tempfile

    from keep import KEPT, unpack

    from underfed.diagnose.run import diagnose
    from underfed.recording.read import read

    script, rules = RUNS[case]
    with tempfile.TemporaryDirectory() as folder:
        unpack(KEPT / f"{script}.json.gz", Path(folder))
        found = diagnose(read(Path(folder)), None)
    first = next(finding for finding in found.findings if finding.helps_now)
    assert first.rule in rules, (case, first.summary)


def helping(seen: Evidence) -> set[str]:
    return {finding.rule for finding in ranked(findings_of(seen), seen) if finding.helps_now}


BUSY = {WHOLE[0]: 5.0, PLAIN: 4.0}
CROWDED = replace(FOUR_CPUS, throttled_share=0.4)


def test_t07_more_threads_than_cpus_is_a_possibility_where_nothing_was_throttled() -> None:
    rule = find("T3")
    assert rule is not None
    finding = rule.check(launching(torch={"threads": 64}, cpus=replace(FOUR_CPUS, throttled_share=0.0)))
    assert finding is not None and not finding.helps_now and finding.note


def test_t08_threads_above_the_quota_do_not_matter_to_a_run_that_the_gpu_gates() -> None:
    seen = replace(computing(BUSY, threads=64), cpus=CROWDED)
    assert "T3" in {finding.rule for finding in findings_of(seen)} and "T3" not in helping(seen)


def test_s07_slow_storage_is_not_blamed_where_the_gpu_gates() -> None:
    slow = fed(2, 0.1, fetch=STORE)
    step = gpu_budget(host_time(slow.regions, {"pre": {"forward": 1.0}, "mid": {"optimizer": 1.0}}), busy(9.9))
    seen = replace(slow, step=step, bound="compute")
    assert not helping(seen) & {"U8", "U25", "T4", "T5", "T7", "T8", "X1"}


def test_g09_device_time_that_ends_in_a_copy_is_not_blamed_on_the_copy() -> None:
    regions = {"pre": 2.0, "d2h": 8.0, "backward": 5.0, "optimizer": 1.0}
    step = gpu_budget(host_time(regions, {"pre": {"forward": 1.0}}), busy(15.9, sync_share=0.0))
    copy = Copy("d2h", False, True, "train.py:40", 8.0, 1.0, 4.0)
    seen = replace(computing(BUSY), regions=regions, step=step, bound="compute", copies=(copy,))
    assert "X5" not in {finding.rule for finding in findings_of(seen)}


def test_p02_tf32_is_not_promised_to_a_run_of_few_matrix_products() -> None:
    seen = computing({"ampere_sgemm_128x64_tn": 0.5, PLAIN: 9.0}, matmul_precision="highest")
    assert "T9" not in helping(seen)


def test_n05_no_gain_is_promised_of_leaving_data_parallel() -> None:
    rule = find("X56")
    assert rule is not None
    finding = rule.check(SPEAKS["X56"])
    assert finding is not None and finding.gain is not None and finding.gain.expected is None


def test_c01_breaks_of_a_real_compilation_are_counted_with_their_reason() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch._dynamo")
    from underfed.observe.agent import facts

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    def forward(x):  # type: ignore[no-untyped-def]
        x = x * x.sum().item() + 1
        x = x * x.sum().item() + 2
        x = x * x.sum().item() + 3
        x = x * x.sum().item() + 4
        x = x * x.sum().item() + 5
        return x * x.sum().item() + 6

    torch.compile(forward, backend="eager")(torch.ones(4))
    counted = facts._dynamo()
    torch._dynamo.reset()
    assert counted is not None and counted["graph_breaks"] >= 5, counted
    assert "item" in json.dumps(counted["reasons"])
    rule = find("X20")
    assert rule is not None
    finding = rule.check(launching(torch={"dynamo": counted}))
    assert finding is not None and any("item" in one.text for one in finding.evidence)
    assert msgspec.json.encode(finding)

"""Idle causes against a second opinion that asks, for every quarter of a millisecond, what the rule book says."""

from __future__ import annotations

import itertools
import json

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from underfed.trace import trace_facts

UNIT = 250_000
PAUSE = 4
CLASS_OF = {
    "cudaMalloc": "allocator",
    "cudaStreamSynchronize": "sync",
    "enumerate(DataPipe)#Mapper": "data",
}
ORDER = ("allocator", "sync", "transfer", "data")
CAUSES = ("allocator", "sync", "transfer", "data", "launch", "host", "silent", "queued", "unknown")

device_rows = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 8), st.integers(0, 6), st.sampled_from(["kernel", "gpu_memcpy"])),
    min_size=1,
    max_size=8,
)
host_rows = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 10),
        st.sampled_from(["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "aten::add", *list(CLASS_OF)[2:]]),
        st.integers(0, 1),
        st.integers(1, 6),
    ),
    max_size=14,
)


def document(device, host):
    events = []
    for start, length, correlation, cat in device:
        name = "Memcpy HtoD (Pageable -> Device)" if cat == "gpu_memcpy" else "k"
        events.append(row(cat, name, 0, 7, start, length, {"device": 0, "stream": 7, "correlation": correlation}))
    for start, length, name, thread, correlation in host:
        cat = "cuda_runtime" if name.startswith("cuda") else "user_annotation" if "Data" in name else "cpu_op"
        args = {"correlation": correlation} if name == "cudaLaunchKernel" else {}
        events.append(row(cat, name, 1, thread, start, length, args))
    return {"schemaVersion": 1, "traceEvents": events}


def row(cat, name, pid, tid, start, length, args):
    times = {"ts": start * UNIT / 1000, "dur": length * UNIT / 1000}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args}


def covered(intervals, hole=0):
    """Units that intervals cover, holes of fewer than `hole` units between them filled."""
    units = {unit for start, end in intervals for unit in range(start, end)}
    edges = sorted(units)
    for left, right in itertools.pairwise(edges):
        if 0 < right - left - 1 < hole:
            units |= set(range(left, right))
    return units


def expected(device, host):
    launches = {}
    for start, length, name, thread, correlation in host:
        if name == "cudaLaunchKernel":
            launches.setdefault(correlation, (start, start + length, thread))
    events = [(start, start + length, launches.get(number), cat) for start, length, number, cat in device]
    busy = covered([(start, end) for start, end, _, _ in events])
    if not busy:
        return None
    begin, end = min(busy), max(busy) + 1
    threads = {launch[2] for _, _, launch, _ in events if launch}
    ours = [entry for entry in host if not threads or entry[3] in threads]
    spans = {name: [] for name in ORDER}
    copying = {number for _, _, number, cat in device if cat == "gpu_memcpy" and number in launches}
    for start, length, name, _, number in ours:
        if name in CLASS_OF:
            spans[CLASS_OF[name]].append((start, start + length))
        elif name == "cudaLaunchKernel" and number in copying:
            first = next(e for e in host if e[2] == "cudaLaunchKernel" and e[4] == number)
            if first[:2] == (start, length):
                spans["transfer"].append((start, start + length))
    classes = {name: covered(found) for name, found in spans.items()}
    rows = [(start, start + length) for start, length, name, _, _ in ours if "Data" not in name]
    calls = [(start, start + length) for start, length, name, _, _ in ours if name == "cudaLaunchKernel"]
    active, launching = covered(rows, PAUSE), covered(calls, PAUSE)
    found = dict.fromkeys(CAUSES, 0)
    for unit in range(begin, end):
        if unit in busy:
            continue
        gap_begin = unit
        while gap_begin - 1 not in busy:
            gap_begin -= 1
        gap_end = unit
        while gap_end not in busy:
            gap_end += 1
        # Of events that start at one moment, a known launch comes before none, and an earlier one before a later one.
        ending = [entry[2] for entry in events if entry[0] == gap_end]
        launch = min((one for one in ending if one is not None), default=None)
        found[cause(unit, gap_begin, launch, classes, active, launching)] += 1
    return found


def cause(unit, gap_begin, launch, classes, active, launching):
    if launch is None:
        return "unknown"
    if launch[0] < gap_begin:
        return "launch" if unit < launch[1] else "queued"
    if unit >= launch[0]:
        return "launch"
    for name in ORDER:
        if unit in classes[name]:
            return name
    sync_end = gap_begin
    while sync_end in classes["sync"]:
        sync_end += 1
    if sync_end > gap_begin and unit < sync_end + PAUSE and unit in active:
        return "sync"
    if unit in launching:
        return "launch"
    return "host" if unit in active else "silent"


def one_launch_a_number(host):
    seen, kept = set(), []
    for entry in host:
        if entry[2] == "cudaLaunchKernel":
            if entry[4] in seen:
                continue
            seen.add(entry[4])
        kept.append(entry)
    return kept


@settings(max_examples=400, deadline=None)
@given(device_rows, host_rows)
@example(
    device=[(0, 1, 1, "kernel"), (30, 1, 2, "kernel")],
    host=[
        (0, 1, "cudaLaunchKernel", 0, 1),
        (2, 2, "aten::add", 0, 1),
        (7, 1, "aten::add", 0, 1),
        (12, 1, "aten::add", 0, 1),
        (18, 2, "cudaLaunchKernel", 0, 3),
        (28, 1, "cudaLaunchKernel", 0, 2),
    ],
)
@example(
    device=[(0, 4, 1, "kernel"), (20, 2, 2, "gpu_memcpy"), (30, 2, 3, "kernel")],
    host=[
        (0, 1, "cudaLaunchKernel", 0, 1),
        (2, 4, "cudaStreamSynchronize", 0, 1),
        (6, 8, "aten::add", 0, 1),
        (18, 8, "cudaLaunchKernel", 0, 2),
        (24, 10, "cudaLaunchKernel", 0, 3),
    ],
)
def test_every_quarter_millisecond_has_the_cause_of_the_rule_book(tmp_path_factory, device, host):
    host = one_launch_a_number(host)
    wanted = expected(device, host)
    path = tmp_path_factory.mktemp("idle") / "trace.json"
    path.write_text(json.dumps(document(device, host)))
    facts = trace_facts(path)
    if wanted is None:
        assert sum(facts.devices[0].idle_ns.values()) == 0
        return
    found = facts.devices[0].idle_ns
    assert {name: found[name] for name in CAUSES} == {name: units * UNIT for name, units in wanted.items()}
    assert sum(found.values()) == sum(wanted.values()) * UNIT
    gaps = facts.devices[0].gaps
    assert [gap.length_ns for gap in gaps] == sorted((gap.length_ns for gap in gaps), reverse=True)
    assert msgspec.json.decode(msgspec.json.encode(facts), type=type(facts)) == facts


def loader_events(wait_units, kind="_MultiProcessingDataLoaderIter"):
    """An operator, 10 ms of nothing, a wait for the loader, and the launch behind it."""
    begin = 1000 * 40
    return [
        row("kernel", "k", 0, 7, 0, 1, {"device": 0, "stream": 7, "correlation": 1}),
        row("cuda_runtime", "cudaLaunchKernel", 1, 0, 0, 1, {"correlation": 1}),
        row("user_annotation", f"enumerate(DataLoader)#{kind}.__next__", 1, 0, 41, wait_units, {}),
        row("cuda_runtime", "cudaLaunchKernel", 1, 0, 41 + wait_units, 1, {"correlation": 2}),
        row("kernel", "k", 0, 7, begin, 1, {"device": 0, "stream": 7, "correlation": 2}),
    ]


def idle_of(tmp_path, events):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return trace_facts(path).devices[0].idle_ns


def test_silence_before_a_long_wait_for_workers_is_their_start(tmp_path):
    assert idle_of(tmp_path, loader_events(30))["data"] == 70 * UNIT
    assert idle_of(tmp_path, loader_events(30))["silent"] == 0


def test_silence_before_a_ready_batch_or_without_workers_is_not(tmp_path):
    found = idle_of(tmp_path, loader_events(2))
    assert (found["data"], found["silent"]) == (2 * UNIT, 40 * UNIT)
    found = idle_of(tmp_path, loader_events(30, "_SingleProcessDataLoaderIter"))
    assert (found["data"], found["silent"]) == (30 * UNIT, 40 * UNIT)

"""Totals of every shared trace against a sweep in plain Python, to the nanosecond."""

from __future__ import annotations

import msgspec
import pytest
from trace_oracle import SHARED, device_events, device_totals, load, ns, shared_traces

from underfed.errors import UsageError
from underfed.trace import trace_facts

TRACES = shared_traces()
NOT_TRACES = {"resnet_2gpu_et.json.gz", "rocprof__908_results.json.gz"}


def name_of(path):
    return "/".join(path.parts[-3:])


#: CI reads all traces by other people, and those of the labelled runs with their fault.
ALL = [
    pytest.param(path, marks=[pytest.mark.slow] if "after" in path.parts else [])
    for path in TRACES
    if path.name not in NOT_TRACES
]


def test_the_shared_traces_are_here():
    if not TRACES:
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    assert len(TRACES) > 60


@pytest.mark.parametrize("path", [p for p in TRACES if p.name in NOT_TRACES], ids=name_of)
def test_what_is_no_trace_is_refused(path):
    with pytest.raises(UsageError):
        trace_facts(path)


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_totals_equal_the_sweep_and_the_work_of_steps_a_plain_join(path):
    events, facts = load(path), trace_facts(path)
    assert_totals(events, facts)
    if "zoo" in path.parts:
        assert_work_of_steps(events, facts)


def assert_totals(events, facts):
    """Totals of each device equal the sweep."""
    assert facts.events == len(events)
    totals = device_totals(events)
    assert {device.id for device in facts.devices} == set(totals)
    for device in facts.devices:
        expected = totals[device.id]
        found = {name.removesuffix("_ns"): value for name, value in msgspec.structs.asdict(device.totals).items()}
        assert found == expected
        assert sum(device.idle_ns.values()) + device.region_busy_ns == device.region_ns


def assert_work_of_steps(events, facts):
    """The work of each step, found by correlation, equals a join of plain loops."""
    calls = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            calls.setdefault(event["args"]["correlation"], ns(event["ts"]))
    steps = [
        event
        for event in events
        if str(event.get("name")).startswith("ProfilerStep#") and event["cat"] == "user_annotation"
    ]
    assert [step.number for step in facts.steps] == sorted(int(event["name"].split("#")[1]) for event in steps)
    rows = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    for step in facts.steps:
        mark = next(event for event in steps if event["name"] == f"ProfilerStep#{step.number}")
        begin, end = ns(mark["ts"]), ns(mark["ts"]) + ns(mark["dur"])
        inside = [e for e in rows if begin <= calls.get(e["args"]["correlation"], -1) < end]
        expected = device_totals(inside)[0]
        assert step.work.busy_ns == expected["busy"]
        assert step.work.copy_ns == expected["copy"]
        assert step.wall_ns == end - begin


def test_device_events_of_the_oracle_are_not_empty():
    if not TRACES:
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    path = SHARED / "zoo" / "tf32_off" / "before" / "trace.json.gz"
    assert len(device_events(load(path))) == 1257

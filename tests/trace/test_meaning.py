"""Verdicts on the labelled runs, on a labelled pair of public traces, and on traces that cannot say."""

from __future__ import annotations

import json

import pytest
from trace_oracle import SHARED, load, ns

from underfed.timeline.ranks import skew_of
from underfed.trace import trace_facts
from underfed.trace.meaning import diagnosis_of

ZOO = sorted(SHARED.glob("zoo/*/before/trace.json.gz"))
#: The planted fault of these shows in the trace; the rest is covered by tests of what must not be claimed.
SHOWN = [path for path in ZOO if json.loads((path.parent / "truth.json").read_text())["trace_shows_cause"]]
needs_shared = pytest.mark.skipif(not ZOO, reason=f"no shared traces beside the repository ({SHARED})")


def name(path):
    return path.parts[-3]


def truth(path):
    return json.loads((path.parent / "truth.json").read_text())


def waits_and_device(step):
    waits = (getattr(step.wait_ms, field) or 0.0 for field in step.wait_ms.__struct_fields__)
    return step.device_ms + sum(waits)


@pytest.mark.parametrize("path", SHOWN, ids=name)
@pytest.mark.parametrize("timed", [True, False], ids=["timed", "untimed"])
def test_the_bound_of_labelled_runs(path, timed):
    label = truth(path)
    found = diagnosis_of([trace_facts(path)], [str(path)], label["step_ms"] if timed else None)
    assert found.verdict.bound == label["cls"]
    assert found.verdict.confidence in (("medium", "high") if timed else ("low", "medium"))
    assert waits_and_device(found.step) == pytest.approx(max(found.step.ms, found.step.device_ms), rel=1e-6)


@needs_shared
def test_a_healthy_run_draws_no_alarm_with_or_without_its_step_time():
    path = SHARED / "zoo" / "healthy_resnet" / "before" / "trace.json.gz"
    for step_ms in (None, truth(path)["step_ms"]):
        found = diagnosis_of([trace_facts(path)], [str(path)], step_ms)
        assert found.verdict.bound == "compute"
        assert not [finding for finding in found.findings if finding.helps_now]


@needs_shared
@pytest.mark.parametrize("variant", ["before", "after"])
def test_a_trace_between_two_bursts_does_not_rule_data_out(variant):
    path = SHARED / "zoo" / "store_slow" / variant / "trace.json.gz"
    blind = diagnosis_of([trace_facts(path)], [str(path)])
    assert blind.verdict.confidence == "low"
    assert any("cannot be ruled out" in limit for limit in blind.limits)
    timed = diagnosis_of([trace_facts(path)], [str(path)], truth(path)["step_ms"])
    assert timed.verdict.bound == "unknown"
    assert any("not in this trace" in limit for limit in timed.limits)


@needs_shared
@pytest.mark.parametrize(("kind", "gain"), [("resnet50_legacy_api", 160.2 / 115.7), ("resnet50", 154.7 / 128.2)])
def test_the_public_pair_of_loaders(kind, gain):
    bound = {}
    for workers in (0, 4):
        path = SHARED / "traces" / "kineto-tb" / f"{kind}_nw{workers}.json.gz"
        found = diagnosis_of([trace_facts(path)], [str(path)])
        bound[workers] = found.verdict.bound
        if workers == 0:
            assert found.verdict.cause == "T4"
            fix = next(finding for finding in found.findings if finding.rule == "T4")
            assert fix.gain.at_most >= gain
            assert {one.source for one in fix.evidence} == {"trace"}
    assert bound[0] == "data"
    assert bound[4] != "data"


@needs_shared
def test_who_came_last_in_the_public_traces_of_eight_ranks():
    """Their clock is one machine's, so plain comparison of starts is a second opinion on each collective."""
    paths = [SHARED / "traces" / "param" / f"dlrm_8rank_worker{rank}.json.gz" for rank in range(8)]
    facts = [trace_facts(path) for path in paths]
    kernels = []
    for path in paths:
        found = [event for event in load(path) if event.get("cat") == "kernel" and "nccl" in event["name"]]
        kernels.append(sorted((ns(event["ts"]), ns(event["dur"])) for event in found))
    last = [max(range(8), key=lambda rank: kernels[rank][at][0]) for at in range(8)]
    skew = skew_of([one.log for one in facts], list(range(8)))
    assert [one.last_in for one in skew.ranks] == [last[1:].count(rank) for rank in range(8)]
    assert skew.clocks_ns < 5_000
    for rank, one in enumerate(skew.ranks):
        waited = sum(kernels[last[at]][at][0] - kernels[rank][at][0] for at in range(1, 8))
        assert one.wait_ns <= waited + 7 * 5_000
    found = diagnosis_of(facts, [str(path) for path in paths])
    assert found.subject.ranks == 8
    assert {device.rank for device in found.device} == set(range(8))
    assert found.verdict.bound == "comms"
    assert "take turns" in found.verdict.text


@needs_shared
def test_an_accelerator_that_the_trace_does_not_show_leaves_the_bound_unknown():
    path = SHARED / "traces" / "hta" / "mtia_inference_trace__mtia_inference_rank_0.json.gz"
    found = diagnosis_of([trace_facts(path)], [str(path)])
    assert found.verdict.bound == "unknown"
    assert found.step.device_ms is None


@needs_shared
@pytest.mark.parametrize(
    ("name", "said"),
    [("cpu_only_rank34_full", "nothing that was measured"), ("rank_non_gpu__rank_non_gpu", "no device time")],
)
def test_ranks_without_gpu_activity_are_not_called_compute_bound(name, said):
    path = SHARED / "traces" / "hta" / f"{name}.json.gz"
    found = diagnosis_of([trace_facts(path)], [str(path)])
    assert found.verdict.bound == "unknown"
    assert said in found.verdict.text


@pytest.mark.parametrize(("busy", "ranks", "bound"), [(9, 1, "compute"), (9, 2, "unknown"), (1, 1, "unknown")])
def test_a_cpu_only_trace_counts_as_computing_what_operators_show(tmp_path, busy, ranks, bound):
    """Steps of 10 ms with `busy` ms of operators; in the rest nothing is recorded: a sleep, or a wait for a rank."""
    events = []
    for step in range(45):
        row = {"ph": "X", "pid": 1, "tid": 1}
        begin = 10_000.0 * step
        mark = {**row, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": begin, "dur": 10_000.0}
        events.append(mark)
        events += [
            {**row, "cat": "cpu_op", "name": "aten::mm", "ts": begin + 500 * at, "dur": 480.0} for at in range(2 * busy)
        ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0, "world_size": ranks}}))
    found = diagnosis_of([trace_facts(path)], [str(path)], 10.0)
    assert found.verdict.bound == bound
    assert found.step.device_ms == pytest.approx(busy, abs=0.6)
    assert found.step.wait_ms.other == pytest.approx(10 - busy, abs=0.6)

"""What-if answers against a machine that is run again without the cause, and against true steps of fixed runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from replay_help import CALL, Machine, period

from underfed.timeline import steps as s
from underfed.timeline.graph import Change, Graph
from underfed.timeline.idle import host_view
from underfed.timeline.launches import match
from underfed.trace import rank_facts
from underfed.trace.kineto import read

SHARED = Path(__file__).resolve().parents[3] / "shared"
STEPS = 6
LAUNCH = st.tuples(
    st.just("launch"), st.integers(0, 1), st.integers(0, 40), st.sampled_from(["compute", "copy", "comms"]),
    st.booleans(),
)  # fmt: skip
HOST = st.tuples(st.just("host"), st.sampled_from(["work", "work", "data", "allocator", "gc"]), st.integers(0, 60))
SCRIPTS = st.lists(
    st.one_of(LAUNCH, LAUNCH, HOST, st.tuples(st.just("sync"), st.integers(0, 1))), min_size=2, max_size=14
)
#: What a reader of times cannot know better: whether a launch or the stream bound where both nearly did.
UNSURE = 25_000


def graph_of(path, machine):
    path.write_text(machine.trace())
    timeline = read(path)
    launches = match(timeline)
    marks = s.marks(timeline)
    view = host_view(timeline, launches, marks.thread)
    rows = np.arange(timeline.device.start.size)
    return Graph(view, rows, int(marks.start[0]), int(marks.end[-1]))


@settings(max_examples=150, deadline=None)
@given(SCRIPTS, st.integers(0, 99))
def test_a_replay_without_a_change_is_what_happened(tmp_path_factory, script, seed):
    machine = Machine(seed=seed).run(script, STEPS)
    assume(machine.kernels)
    graph = graph_of(tmp_path_factory.mktemp("replay") / "t.json", machine)
    assert graph.replay(Change()) == pytest.approx(machine.end(), abs=2)


@settings(max_examples=200, deadline=None)
@given(
    SCRIPTS, st.integers(0, 99), st.sampled_from(["data", "allocator", "gc", "sync", None]), st.sampled_from([1.0, 0.4])
)
@example([("host", "data", 50), ("launch", 0, 40, "compute", False), ("sync", 0)], 1, "data", 1.0)
@example([("launch", 0, 40, "compute", False), ("sync", 0), ("host", "work", 30)], 2, "sync", 0.4)
def test_a_replay_without_a_cause_is_what_the_machine_does_without_it(tmp_path_factory, script, seed, cause, speed):
    machine = Machine(seed=seed).run(script, STEPS)
    assume(machine.kernels)
    graph = graph_of(tmp_path_factory.mktemp("replay") / "t.json", machine)
    gone = frozenset({cause} if cause else ())
    waits = frozenset({"sync"}) & gone
    free, bound = (graph.period(Change(gone, speed, waits, turns=turns)) for turns in (False, True))
    truth = period(script, STEPS, seed=seed, without=cause, speed=speed)
    unsure = UNSURE * STEPS + STEPS * len(script) * (CALL + 2_000)
    # A sync that opens the first step has nothing to wait for in the trace; in a loop it has.
    first = truth / STEPS if any(action[0] == "sync" for action in script) else 0
    # Streams can wait for each other without its showing; so the truth lies between none of that, and all of it.
    assert free <= truth + unsure
    assert bound >= truth - first - unsure
    if not any(action[0] == "launch" and action[-1] for action in script):
        assert free >= truth - first - unsure


@settings(max_examples=100, deadline=None)
@given(SCRIPTS, st.integers(0, 99), st.sampled_from(["data", "sync", None]), st.sampled_from([1.0, 0.4]))
def test_streams_wait_for_each_other_where_the_trace_recorded_it(tmp_path_factory, script, seed, cause, speed):
    machine = Machine(seed=seed, noted=True).run(script, STEPS)
    assume(machine.waits)
    graph = graph_of(tmp_path_factory.mktemp("replay") / "t.json", machine)
    assert graph.replay(Change()) == pytest.approx(machine.end(), abs=2)
    gone = frozenset({cause} if cause else ())
    found = [graph.period(Change(gone, speed, frozenset({"sync"}) & gone, turns=turns)) for turns in (False, True)]
    truth = period(script, STEPS, seed=seed, without=cause, speed=speed)
    unsure = UNSURE * STEPS + STEPS * len(script) * (CALL + 2_000)
    # What the first step waits for of the one before it is not in the trace: a sync's, and another stream's event.
    first = truth / STEPS
    assert found[0] <= truth + unsure
    assert found[1] >= truth - first - unsure
    if not any(action[0] == "sync" for action in script):
        assert found[0] == found[1]


@settings(max_examples=100, deadline=None)
@given(SCRIPTS, st.integers(0, 99))
@example([("host", "data", 50), ("launch", 0, 20, "compute", False), ("sync", 0)], 1)
def test_no_cause_gains_more_than_at_most(tmp_path_factory, script, seed):
    machine = Machine(seed=seed).run(script, STEPS)
    assume(machine.kernels)
    path = tmp_path_factory.mktemp("replay") / "t.json"
    path.write_text(machine.trace())
    step = period(script, STEPS, seed=seed) / STEPS
    (facts,) = rank_facts(path, step_ms=step / 1e6, what_if=True)
    found = {one.cause: one for one in facts.what_if.causes}
    assert facts.what_if.whole
    for cause in ("data", "allocator", "gc", "sync"):
        truth = period(script, STEPS, seed=seed, without=cause) / STEPS
        if cause not in found:
            # Causes that take next to nothing are left out; a sync that opens the first step is not seen to wait.
            assert truth >= 0.95 * step - UNSURE or script[0][0] == "sync"
            continue
        assert found[cause].at_most >= step / (truth + UNSURE)
        low, high = found[cause].expected_ns
        assert found[cause].best_ns <= low <= high <= step + 1


#: Scenarios whose fix takes the whole cause away.
FIXED = {
    "workers_zero": "data", "workers_few": "data", "pageable": "transfer", "item_sync": "sync", "ema_cpu": "sync",
    "empty_cache": "allocator", "tiny_ops": "launch",
}  # fmt: skip


@pytest.mark.parametrize("name", FIXED)
def test_true_steps_of_fixed_runs_lie_where_they_are_expected(name):
    folder = SHARED / "zoo" / name
    if not folder.is_dir():
        pytest.skip(f"no shared runs beside the repository ({SHARED})")
    before, after = (json.loads((folder / one / "truth.json").read_text())["step_ms"] for one in ("before", "after"))
    (facts,) = rank_facts(folder / "before" / "trace.json.gz", step_ms=before, what_if=True)
    found = next(one for one in facts.what_if.causes if one.cause == FIXED[name])
    assert found.now_ns == before * 1e6
    assert found.at_most >= before / after
    low, high = found.expected
    assert high >= before / after
    if name != "workers_few":  # whose fixed run still waits for its workers
        assert low <= before / after


@pytest.mark.parametrize("name", ["healthy_resnet", "tf32_off", "attn_math", "fp32"])
def test_runs_that_compute_gain_nothing_from_a_host_that_waits_less(name):
    folder = SHARED / "zoo" / name / "before"
    if not folder.is_dir():
        pytest.skip(f"no shared runs beside the repository ({SHARED})")
    step = json.loads((folder / "truth.json").read_text())["step_ms"]
    (facts,) = rank_facts(folder / "trace.json.gz", step_ms=step, what_if=True)
    assert all(one.at_most < 1.1 for one in facts.what_if.causes)


def test_a_step_that_is_not_in_the_trace_is_expected_to_gain_nothing_in_particular():
    folder = SHARED / "zoo" / "store_slow" / "before"
    if not folder.is_dir():
        pytest.skip(f"no shared runs beside the repository ({SHARED})")
    step = json.loads((folder / "truth.json").read_text())["step_ms"]
    (facts,) = rank_facts(folder / "trace.json.gz", step_ms=step, what_if=True)
    assert facts.what_if.causes
    assert all(one.expected is None for one in facts.what_if.causes)

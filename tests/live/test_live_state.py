"""The state against a plain fold over the same events, and its bounds over hours."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import median

from hypothesis import example, given, settings
from hypothesis import strategies as st

from underfed.live_view.state import CHANGES, POINTS, STEPS, Gauge, Judged, Reading, State, judge, read

BOUNDS = ("data", "host", "compute", "comms", "unknown")
NAMES = ("CPU", "quota", "GPU 0")

times = st.floats(0, 1e6, allow_nan=False)
gauge = st.builds(Gauge, st.sampled_from(NAMES), st.none() | st.floats(0, 1e3), st.just("x"))
reading = st.builds(
    Reading,
    at=times,
    steps=st.lists(st.floats(0, 1e5), max_size=5).map(tuple),
    gauges=st.lists(gauge, max_size=3, unique_by=lambda each: each.name).map(tuple),
)
verdict = st.builds(
    Judged,
    at=times,
    bound=st.sampled_from(BOUNDS),
    words=st.sampled_from(("one", "one (more of it)", "two")),
    confidence=st.sampled_from(("high", "low")),
    text=st.text(max_size=5),
    cause=st.sampled_from((None, "T4", "X9")),
)
events = st.lists(reading | verdict, max_size=60)


def fold(found: list[Reading | Judged], first: State | None = None) -> State:
    state = first or State(title="t", began=0.0, at=0.0, stepping=True)
    for event in found:
        state = read(state, event) if isinstance(event, Reading) else judge(state, event)
    return state


@given(events)
def test_a_change_is_noted_exactly_where_the_verdict_is_another_one(found: list[Reading | Judged]) -> None:
    state = fold(found)
    verdicts = [event for event in found if isinstance(event, Judged)]
    whole = [(each.bound, each.words.split(" (")[0], each.cause) for each in verdicts]
    begins = [at for at in range(len(whole)) if at == 0 or whole[at] != whole[at - 1]]
    assert state.changed == len(begins)
    assert [(each.at, each.bound, each.words, each.cause) for each in state.changes] == [
        (verdicts[at].at, *whole[at]) for at in begins
    ]
    assert state.since == (verdicts[begins[-1]].at if begins else None)
    assert state.judged == (verdicts[-1] if verdicts else None)


@given(events)
def test_every_track_has_a_point_a_reading_since_it_was_first_seen_and_no_reading_is_no_zero(
    found: list[Reading | Judged],
) -> None:
    state = fold(found)
    readings = [event for event in found if isinstance(event, Reading)]
    for name in NAMES:
        points = [next((gauge.value for gauge in each.gauges if gauge.name == name), "none") for each in readings]
        known = [at for at, point in enumerate(points) if point != "none"]
        track = next((track for track in state.tracks if track.name == name), None)
        if not known:
            assert track is None
        else:
            assert track is not None
            assert track.values == tuple(None if point == "none" else point for point in points[known[0] :])
    assert state.step_track == tuple(median(each.steps) if each.steps else None for each in readings)


@given(events)
@example([Reading(at=0.0, steps=(2.2250738585e-313,))])
def test_step_time_and_rate_are_those_of_the_last_steps(found: list[Reading | Judged]) -> None:
    state = fold(found)
    steps = [step for event in found if isinstance(event, Reading) for step in event.steps]
    assert state.steps == len(steps)
    last = steps[-STEPS:]
    assert state.step_ms == (median(last) if last else None)
    if sum(last) == 0 or math.isinf(1000 * len(last) / sum(last)):
        assert state.rate is None
    else:
        assert abs(state.rate * sum(last) / 1000 - len(last)) < 1e-6 * len(last)


@given(events)
def test_time_never_goes_back(found: list[Reading | Judged]) -> None:
    assert fold(found).at == max([0.0, *(event.at for event in found)])


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 3))
def test_hours_take_no_more_room_than_minutes(seed: int) -> None:
    state = State(title="t", began=0.0, at=0.0, stepping=True)
    base = Judged(at=0.0, bound="data", words="one", confidence="high", text="")
    for at in range(2 * POINTS + seed):
        state = read(state, Reading(at=float(at), steps=(1.0, 2.0), gauges=(Gauge("CPU", 0.5, "half"),)))
        state = judge(state, replace(base, at=float(at), words=("one", "two")[at % 2]))
    assert len(state.step_track) == len(state.tracks[0].values) == POINTS
    assert len(state.recent) == STEPS
    assert len(state.changes) == CHANGES
    assert state.changed == 2 * POINTS + seed
    assert state.steps == 2 * (2 * POINTS + seed)

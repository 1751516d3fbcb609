"""Gains: ordered, at least 1, and never above what the step leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from underfed.diagnosis import Gain, Step, Waits
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import floor_ms, gain_between, gain_without

MS = st.floats(0.01, 1e5)
ROUNDING = 1e-3


def run(step: float, compute: float = 0.0, sync: float = 0.0, on_gpu: bool = True) -> Evidence:
    share = min(step, compute)
    return Evidence(
        kind="run",
        on_gpu=on_gpu,
        step=Step(ms=step, device_ms=share, compute_ms=share, wait_ms=Waits(sync=sync)),
    )


def ordered(gain: Gain) -> bool:
    low, high = gain.expected or (1.0, 1.0)
    return 1.0 <= low <= high <= gain.at_most


@given(MS, st.floats(0, 1e6), st.one_of(st.none(), st.tuples(st.floats(0, 1e6), st.floats(0, 1e6))))
def test_any_gain_is_ordered(step: float, best: float, likely: tuple[float, float] | None) -> None:
    gain = gain_between(run(step), best, likely)
    assert ordered(gain)
    assert (gain.expected is None) == (likely is None)


@given(MS, st.floats(0, 1), st.tuples(st.floats(0, 2), st.floats(0, 2)))
def test_no_gain_is_above_the_step_over_the_best_step(step: float, best: float, likely: tuple[float, float]) -> None:
    floor = max(best * step, 0.001 * step)
    gain = gain_between(run(step), best * step, (likely[0] * step, likely[1] * step))
    assert gain.at_most <= step / floor + ROUNDING


@given(MS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_removing_time_never_beats_the_device(step: float, compute: float, saved: float, sync: float) -> None:
    evidence = run(step, compute * step, sync * step)
    gain = gain_without(evidence, saved * step)
    assert ordered(gain)
    assert gain.at_most <= step / max(floor_ms(evidence), 0.0005 * step) + ROUNDING


@given(MS, st.floats(0, 0.9), st.floats(0, 0.9))
def test_more_time_saved_is_never_worth_less(step: float, a: float, b: float) -> None:
    less, more = sorted((a, b))
    one, other = gain_without(run(step), less * step), gain_without(run(step), more * step)
    assert one.expected is not None and other.expected is not None
    assert other.at_most >= one.at_most - ROUNDING
    assert other.expected[0] >= one.expected[0] - ROUNDING and other.expected[1] >= one.expected[1] - ROUNDING


def test_half_the_step_gone_is_worth_about_two() -> None:
    gain = gain_without(run(100.0, on_gpu=False), 50.0)
    assert gain.expected is not None
    assert gain.expected[0] < 2.0 < gain.expected[1] <= gain.at_most


def test_a_cpu_has_no_floor_and_a_gpu_has_its_computing() -> None:
    assert floor_ms(run(100.0, 60.0, on_gpu=False)) == 0.0
    assert floor_ms(run(100.0, 60.0)) == 60.0
    assert gain_without(run(100.0, 60.0), 90.0).at_most <= 100 / 60 + ROUNDING

"""The statistics of a comparison against simulated runs: noise that carries over, drift, and levels of their own."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compare_help import steps
from hypothesis import given
from hypothesis import strategies as st

from underfed.compare import noise
from underfed.compare.judge import rule
from underfed.trial import stats

TRIALS = 1000


def side(rng: np.random.Generator, runs: int, count: int, ms: float) -> list[noise.Value]:
    found = [noise.value(stats.blocks(steps(rng, count, ms))) for _ in range(runs)]
    assert None not in found
    return [one for one in found if one is not None]


def calls(runs: int, count: int, factor: float, trials: int = TRIALS) -> dict[str, float]:
    rng = np.random.default_rng(5)
    found = [
        noise.difference(side(rng, runs, count, 10.0), side(rng, runs, count, 10.0 * factor)) for _ in range(trials)
    ]
    return {call: sum(one is not None and one.call == call for one in found) / trials for call in ("faster", "slower")}


@pytest.mark.parametrize(("runs", "count"), [(1, 200), (3, 60)])
def test_the_same_against_the_same_is_a_difference_in_at_most_one_of_twenty(runs: int, count: int) -> None:
    found = calls(runs, count, 1.0)
    assert found["faster"] + found["slower"] <= 0.05


@pytest.mark.parametrize(("runs", "count"), [(1, 300), (3, 60)])
def test_five_percent_under_three_percent_of_noise_is_found(runs: int, count: int) -> None:
    found = calls(runs, count, 1.05, trials=500)
    assert found["slower"] >= 0.9 and found["faster"] == 0


def test_the_interval_holds_the_truth() -> None:
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(300):
        found = noise.difference(side(rng, 2, 100, 10.0), side(rng, 2, 100, 8.0))
        assert found is not None
        held += found.low <= 1.25 <= found.high
    assert held / 300 >= 0.95


def test_noise_that_carries_over_widens_the_interval() -> None:
    rng = np.random.default_rng(7)
    alone = [noise.value(stats.blocks(steps(rng, 400, 10, carry=0.0, drift=0))) for _ in range(20)]
    carried = [noise.value(stats.blocks(steps(rng, 400, 10, carry=0.95, drift=0))) for _ in range(20)]
    assert np.median([one.error for one in carried if one]) > 2 * np.median([one.error for one in alone if one])


def test_a_drift_is_measured_and_widens_the_interval() -> None:
    walls = [10 * math.exp(0.2 * at / 399) for at in range(400)]
    found = noise.value(stats.blocks(walls))
    assert found is not None and found.drift == pytest.approx(0.2, rel=0.05)
    both = noise.difference([found], [found])
    assert both is not None and both.detectable > math.exp(1.96 * 0.2 * math.sqrt(2 / 12) * 0.95)


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=60), st.floats(0.1, 10))
def test_a_factor_on_all_steps_is_the_ratio(blocks: list[float], factor: float) -> None:
    one, two = noise.value(blocks), noise.value([factor * block for block in blocks])
    assert one is not None and two is not None
    found = noise.difference([one], [two])
    assert (found is None) == (len(blocks) < noise.FEWEST_BLOCKS)
    if found is not None:
        assert found.ratio == pytest.approx(1 / factor, rel=1e-6) and found.low <= found.ratio <= found.high


@pytest.mark.parametrize("bad", [[], [1.0, 0.0], [1.0, -1.0], [math.nan], [math.inf, 1.0]])
def test_what_is_no_time_has_no_value(bad: list[float]) -> None:
    assert noise.value(bad) is None


def difference(ratio: float, half: float) -> noise.Difference:
    low, high = ratio * math.exp(-half), ratio * math.exp(half)
    return noise.Difference(
        ratio=ratio, low=low, high=high, detectable=math.exp(half), between=0.01, measured=True, drift=0, call="none"
    )


@pytest.mark.parametrize(
    ("slowdown", "half", "want"),
    [
        (1.00, 0.02, "pass"),
        (1.20, 0.02, "fail"),
        (1.06, 0.02, "pass"),  # not beyond the noise
        (1.08, 0.02, "fail"),
        (1.00, 0.20, "undecided"),  # a slowdown of twice the limit would not have shown
        (1.40, 0.20, "fail"),
        (0.70, 0.20, "pass"),  # so much faster that no noise makes it slower by the limit
    ],
)
def test_the_ruling_is_about_the_limit_and_the_noise(slowdown: float, half: float, want: str) -> None:
    assert rule(difference(1 / slowdown, half), 0.05, work_differs=False) == want


def test_no_ruling_where_the_work_differs_or_nothing_shows_the_noise() -> None:
    assert rule(difference(0.5, 0.01), 0.05, work_differs=True) == "undecided"
    assert rule(None, 0.05, work_differs=False) == "undecided"

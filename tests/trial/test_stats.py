"""The statistics of a trial against simulated runs whose truth is known, and against tables and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from underfed.trial import stats

#: Two-sided 95 % quantiles of Student's t as tables print them.
TABLE = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980}


def runs(
    rng: np.random.Generator, count: int, step: float, *, between: float = 0.01, within: float = 0.03
) -> list[list[float]]:
    """Blocks of so many runs: each has its own level, and blocks around it."""
    return [
        [float(step * level * math.exp(rng.normal(0, within))) for _ in range(20)]
        for level in np.exp(rng.normal(0, between, count))
    ]


def calls(pairs: int, factor: float, *, trials: int = 200) -> dict[str, float]:
    rng = np.random.default_rng(7)
    found = [stats.effect(runs(rng, pairs, 10.0), runs(rng, pairs, 10.0 / factor)) for _ in range(trials)]
    return {call: sum(one is not None and one.call == call for one in found) / trials for call in ("faster", "slower")}


@pytest.mark.parametrize("freedom", TABLE)
def test_student_is_what_tables_print(freedom: int) -> None:
    assert stats.t975(freedom) == pytest.approx(TABLE[freedom], abs=6e-4)


@pytest.mark.parametrize("pairs", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_the_same_against_the_same_is_seldom_called_a_change(pairs: int) -> None:
    found = calls(pairs, 1.0)
    assert found["faster"] + found["slower"] <= 0.05


def test_a_change_beyond_the_noise_is_found_and_has_its_sign() -> None:
    assert calls(6, 1.10)["faster"] > 0.9
    assert calls(6, 1 / 1.10)["slower"] > 0.9


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(300):
        found = stats.effect(runs(rng, 4, 10.0), runs(rng, 4, 8.0))
        assert found is not None
        held += found.low <= 1.25 <= found.high
    assert held / 300 >= 0.93


def test_the_bootstrap_is_the_brute_force_one() -> None:
    rng = np.random.default_rng(3)
    base, changed = runs(rng, 3, 10.0), runs(rng, 3, 9.0)
    drawn = []
    for _ in range(4000):
        logs = [
            math.log(np.median(rng.choice(a, len(a))) / np.median(rng.choice(b, len(b))))
            for a, b in zip(base, changed, strict=True)
        ]
        drawn.append(sum(logs) / len(logs))
    low, high = stats.bootstrap(base, changed)
    want = np.quantile(drawn, (0.025, 0.975))
    width = want[1] - want[0]
    assert abs(low - want[0]) < 0.15 * width and abs(high - want[1]) < 0.15 * width


def session(rng: np.random.Generator, pairs: int, factor: float) -> stats.Effect | None:
    """Two arms in turns on a machine that drifts by up to 3 %: 100 steps a run with 3 % of noise that carries over."""
    drift = rng.uniform(-0.03, 0.03)
    arms: tuple[list[list[float]], list[list[float]]] = ([], [])
    order = [arm for pair in range(pairs) for arm in ((0, 1) if pair % 2 == 0 else (1, 0))]
    for at, arm in enumerate(order):
        level, noise = rng.normal(0, 0.003) + drift * at / (len(order) - 1), np.zeros(150)
        shocks = rng.normal(0, 0.03 * 0.8, 150)
        for step in range(1, 150):
            noise[step] = 0.6 * noise[step - 1] + shocks[step]
        walls = 10.0 * (1 / factor if arm else 1.0) * np.exp(level + noise[50:])
        arms[arm].append(stats.blocks([float(wall) for wall in walls]))
    return stats.effect(*arms)


@pytest.mark.parametrize("sessions", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_drift_and_noise_that_carries_over_are_seldom_called_a_change(sessions: int) -> None:
    rng = np.random.default_rng(17)
    found = [session(rng, 4, 1.0) for _ in range(sessions)]
    assert sum(one is None or one.call != "none" for one in found) <= 0.05 * sessions


def test_five_percent_under_three_percent_of_noise_and_drift_is_found() -> None:
    rng = np.random.default_rng(19)
    found = [session(rng, 4, 1.05) for _ in range(300)]
    assert sum(one is not None and one.call == "faster" for one in found) >= 270


def test_the_floor_is_of_all_pairs_of_one_arm_and_never_lucky() -> None:
    alone = [[10.0] * 4, [10.4] * 4, [10.2] * 4]
    want = (math.log(1.04) + math.log(1.02) + math.log(10.4 / 10.2)) / 3
    assert stats.noise_floor(alone) == pytest.approx(want)
    assert stats.noise_floor(alone[:1]) == 0.0 and stats.noise_floor() == 0.0
    noisy = [8.0, 12.0, 9.0, 11.0, 10.0]
    assert stats.noise_floor([noisy, noisy]) > 0.02, "equal medians by chance"


WALLS = st.lists(st.floats(0.01, 1e4), max_size=200)


@given(WALLS, st.integers(1, 12))
def test_blocks_lie_within_the_steps_and_drop_only_the_first(walls: list[float], burst: int) -> None:
    found = stats.blocks(walls, burst=burst)
    assert bool(found) == bool(walls)
    for block in found:
        assert min(walls) * (1 - 1e-9) <= block <= max(walls) * (1 + 1e-9)
    if len(found) >= stats.FEWEST_BLOCKS:
        size = 5 if burst == 1 else max(-(-5 // burst), 2) * burst
        assert found[-1] == pytest.approx(float(np.mean(walls[-size:])))
        assert len(found) == len(walls) // size


@given(st.lists(st.lists(st.floats(0.1, 1e3), min_size=1, max_size=8), min_size=2, max_size=5))
def test_swapping_the_arms_turns_the_ratio_over(base: list[list[float]]) -> None:
    changed = [[value * 0.5 for value in run] for run in base]
    there, back = stats.effect(base, changed), stats.effect(changed, base)
    assert there is not None and back is not None
    assert there.ratio == pytest.approx(2.0) and back.ratio == pytest.approx(0.5)
    assert there.low <= there.ratio <= there.high


@pytest.mark.parametrize("bad", [[[1.0]], [[1.0], []], [[1.0], [0.0]], [[1.0], [-1.0]]])
def test_what_cannot_be_compared_is_none(bad: list[list[float]]) -> None:
    assert stats.effect(bad, [[1.0]] * len(bad)) is None


@pytest.mark.parametrize(("detectable", "says"), [(1.021, "less than 2.1 %"), (2.0, "less than 100.0 %")])
def test_how_small_a_difference_would_not_have_shown(detectable: float, says: str) -> None:
    assert says in (stats.unseen(detectable) or "")


@pytest.mark.parametrize("detectable", [2.01, 104.37, math.inf])
def test_what_even_half_the_time_would_not_have_shown_in_is_no_figure(detectable: float) -> None:
    assert stats.unseen(detectable) is None

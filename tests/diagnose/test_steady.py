"""Where warm-up ends, on synthetic runs whose end of warm-up is planted."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from underfed.diagnose.steady import steady_from

SHAPES = {
    "one slow step": lambda at, count: 30.0 if at == 0 else 1.0,
    "a plateau": lambda at, count: 4.0,
    "a slope": lambda at, count: 1.0 + 5.0 * (count - at) / count,
    "an exponential": lambda at, count: 1.0 + 20.0 * 0.7**at,
    "two compilations": lambda at, count: 50.0 if at in (0, count // 2) else 1.2,
    "a cold cache that warms": lambda at, count: 3.0 - 1.5 * at / count,
}


def noisy(rng: random.Random, base: float, noise: float = 0.05) -> float:
    return base * max(0.2, rng.gauss(1.0, noise))


def series(rng: random.Random, shape: str, warmup: int, count: int, burst: int = 1, wait: float = 0.0) -> list[float]:
    """Steps of about 10 ms; with a burst every `burst`-th step waits `wait` ms more."""
    walls = [10.0 * SHAPES[shape](at, warmup) for at in range(warmup)]
    walls += [10.0 + (wait if at % burst == 0 else 0.0) for at in range(count)]
    return [noisy(rng, wall) for wall in walls]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("burst", [1, 4, 8])
@pytest.mark.parametrize("warmup", [1, 5, 20])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_mean_behind_the_warm_up_is_that_of_the_steady_steps(
    shape: str, warmup: int, burst: int, seed: int
) -> None:
    rng = random.Random(seed)
    wait = 0.0 if burst == 1 else 40.0
    walls = series(rng, shape, warmup, 240, burst, wait)
    found = steady_from(walls, burst)
    true = fmean(walls[warmup:])
    assert found.steady
    assert fmean(walls[found.first :]) == pytest.approx(true, rel=0.1)
    assert found.first <= warmup + 2 * burst + 5, "steady steps were thrown away"


@pytest.mark.parametrize("seed", range(10))
def test_a_steady_run_loses_next_to_nothing(seed: int) -> None:
    rng = random.Random(seed)
    walls = [noisy(rng, 10.0, 0.1) for _ in range(100)]
    found = steady_from(walls)
    assert found.steady and found.first <= 3


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("every", [25, 50])
def test_rare_stalls_are_part_of_the_run(seed: int, every: int) -> None:
    rng = random.Random(seed)
    walls = [noisy(rng, 10.0 + (200.0 if at % every == every - 1 else 0.0)) for at in range(200)]
    found = steady_from(walls)
    assert fmean(walls[found.first :]) == pytest.approx(fmean(walls), rel=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_a_run_that_keeps_slowing_down_is_not_called_steady_early(seed: int) -> None:
    rng = random.Random(seed)
    walls = [noisy(rng, 10.0 * 1.02**at, 0.02) for at in range(200)]
    found = steady_from(walls)
    # The later half of such a run has no level of its own; whatever is found lies within it or is not called steady.
    assert not found.steady or found.first > 40


@pytest.mark.parametrize("seed", range(5))
def test_slow_drift_of_a_few_percent_is_steady(seed: int) -> None:
    rng = random.Random(seed)
    walls = [noisy(rng, 10.0 * (1 + 0.1 * at / 200), 0.03) for at in range(200)]
    found = steady_from(walls)
    assert found.steady and found.first <= 5


@given(st.lists(st.floats(0, 1e12), max_size=60), st.integers(0, 100))
def test_any_series_has_a_first_step_within_it(walls: list[float], burst: int) -> None:
    found = steady_from(walls, burst)
    assert 0 <= found.first <= max(0, len(walls) - 1)
    if found.steady:
        assert found.first <= len(walls) // 2


@given(st.lists(st.floats(0.01, 1e3), min_size=8, max_size=60), st.sampled_from([0.25, 4.0, 1024.0]))
def test_the_unit_does_not_matter(walls: list[float], scale: float) -> None:
    assert steady_from(walls).first == steady_from([wall * scale for wall in walls]).first

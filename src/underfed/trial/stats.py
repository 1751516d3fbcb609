"""The statistics of a trial: pure functions of step times; no file, no clock.

The unit is the run, not the step: steps of one run depend on each other, and two runs of the same thing differ by more
than their steps say. A run's value is the median of the means of blocks of steps; runs of both arms alternate, so a
pair shares the machine's state; and what two runs of the same arm differ by is the floor below which nothing counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np

Call = Literal["faster", "slower", "none"]

RESAMPLES = 2000
FEWEST_PAIRS = 2
FEWEST_BLOCKS = 3
LEAST_BLOCK = 5
#: Where a step of half the time would not have shown, runs say nothing of a change, not even that there is none.
TELLING = 2.0

#: 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom; beyond, an expansion is exact to 4 digits.
_T975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


def t975(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t; `freedom` is 1 or more."""
    if freedom <= len(_T975):
        return _T975[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a change did: `ratio` is baseline time over changed time, above 1 where the change is faster.

    `low` and `high` bound it with 95 % confidence. `floor` is the factor (1 or more) by which two runs of the same arm
    differ. `detectable` is the smallest factor that this trial could have told from none.
    """

    ratio: float
    low: float
    high: float
    floor: float
    detectable: float
    call: Call


def unseen(detectable: float) -> str | None:
    """Say how small a difference would not have shown; None where the runs were too disturbed to tell anything."""
    if detectable > TELLING:
        return None
    return f"a difference of less than {100 * (detectable - 1):.1f} % would not have shown"


#: The words for that None; what to do about it is the caller's.
DISTURBED = "too disturbed to tell: runs of the same thing differ so much that half the time would not have shown"


def blocks(walls: Sequence[float], *, burst: int = 1, borders: Sequence[int] = ()) -> list[float]:
    """Cut step times into blocks and return the mean of each.

    A block holds whole bursts of `burst` batches, at least two of them; where the run has four epoch `borders` or more
    (indices of first steps), a block is one epoch, so that what an epoch costs at its border is in every block.
    """
    if len(borders) > FEWEST_BLOCKS:
        return [float(np.mean(walls[a:b])) for a, b in pairwise(borders) if b > a]
    size = -(-LEAST_BLOCK // max(1, burst)) * max(1, burst)
    size = max(size, 2 * burst if burst > 1 else size)
    count = len(walls) // size
    if count < FEWEST_BLOCKS:
        return [float(np.mean(walls))] if len(walls) else []
    kept = np.asarray(walls[len(walls) - count * size :], dtype=float)
    return [float(value) for value in kept.reshape(count, size).mean(axis=1)]


def effect(base: Sequence[Sequence[float]], changed: Sequence[Sequence[float]]) -> Effect | None:
    """Compare paired runs, each given as its blocks; None with fewer than two pairs, or a run without a block.

    The interval is the wider of two: Student's over the pairs' log ratios (what differs between runs), and the
    bootstrap over blocks inside the runs (what differs within them). A difference is called where the interval lies
    outside the band that the floor spans around 1.
    """
    pairs = min(len(base), len(changed))
    base, changed = base[:pairs], changed[:pairs]
    if pairs < FEWEST_PAIRS or any(not run or min(run) <= 0 for run in (*base, *changed)):
        return None
    logs = np.array([math.log(np.median(a) / np.median(b)) for a, b in zip(base, changed, strict=True)])
    centre = float(logs.mean())
    half = t975(pairs - 1) * float(logs.std(ddof=1)) / math.sqrt(pairs)
    low, high = bootstrap(base, changed)
    low, high = min(low, centre - half), max(high, centre + half)
    floor = noise_floor(base, changed)
    call: Call = "faster" if low > floor else "slower" if high < -floor else "none"
    return Effect(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        floor=math.exp(floor),
        detectable=math.exp(max(centre - low, high - centre) + floor),
        call=call,
    )


def bootstrap(
    base: Sequence[Sequence[float]], changed: Sequence[Sequence[float]], *, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean log ratio when each run's blocks are drawn anew."""
    generator = np.random.default_rng(seed)
    total = np.zeros(RESAMPLES)
    for a, b in zip(base, changed, strict=True):
        total += np.log(_medians(a, generator)) - np.log(_medians(b, generator))
    low, high = np.quantile(total / len(base), (0.025, 0.975))
    return float(low), float(high)


def _medians(run: Sequence[float], generator: np.random.Generator) -> np.ndarray:
    values = np.asarray(run, dtype=float)
    drawn: np.ndarray = np.median(values[generator.integers(0, len(values), (RESAMPLES, len(values)))], axis=1)
    return drawn


def noise_floor(*arms: Sequence[Sequence[float]]) -> float:
    """Return the mean size of the log ratio of two runs of the same thing: A/A pairs, of every arm with itself.

    Two runs can agree by chance; the floor is never below what the blocks inside the runs let expect.
    """
    values = [[math.log(float(np.median(run))) for run in arm if run] for arm in arms]
    apart = [abs(a - b) for arm in values for a, b in combinations(arm, 2)]
    if not apart:
        return 0.0
    errors = [_error(run) for arm in arms for run in arm if len(run) >= FEWEST_BLOCKS]
    inside = math.sqrt(sum(error**2 for error in errors) / len(errors)) if errors else 0.0
    # Of two draws from a normal distribution, the mean distance is 2 / sqrt(pi) of its standard deviation.
    return max(sum(apart) / len(apart), 2 / math.sqrt(math.pi) * inside)


def _error(run: Sequence[float]) -> float:
    """Standard error of the log of a run's median, from the spread of its blocks."""
    return float(np.log(_medians(run, np.random.default_rng(0))).std())

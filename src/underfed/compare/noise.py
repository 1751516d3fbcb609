"""How far two sides are apart, and how sure that is: pure functions of step times; no file, no clock.

Each side is one run or several of the same thing, in any order and at any time: there are no pairs. Steps of a run
depend on each other and drift, and two runs of the same thing differ by more than their steps say. So a run has one
value (the median of the means of its blocks), its uncertainty comes from a bootstrap of stretches of blocks, and what
runs differ by is measured where there are several of a side, and allowed for where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from underfed.trial.stats import t975

Call = Literal["faster", "slower", "none"]

#: Standard deviation of the logarithm of a run's step between runs of the same thing, where no side has two runs.
#: Runs of one program on one machine differ by their memory's layout, clocks and neighbours. It is an allowance, which
#: the page says: several runs a side measure it instead.
BETWEEN = 0.01

#: Draws of the bootstrap: enough for a standard error, which is all that is taken from them.
RESAMPLES = 500

#: A run of fewer blocks does not show its own noise.
FEWEST_BLOCKS = 8


@dataclass(frozen=True, kw_only=True)
class Value:
    """One run: logarithm of its step, its standard error from within the run, and the drift from its start to its end.

    `freedom` is how many independent stretches the error rests on, less one; 0 where the run is too short to tell.
    """

    log: float
    error: float
    drift: float
    freedom: int


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Step of A over step of B with its 95 % interval: above 1, B is faster. `detectable` is the least that would show.

    `between` is the standard deviation of runs of the same thing that was used, and `measured` whether runs showed it.
    """

    ratio: float
    low: float
    high: float
    detectable: float
    between: float
    measured: bool
    drift: float
    call: Call


def value(blocks: Sequence[float], *, seed: int = 0) -> Value | None:
    """Return the value of a run from the means of its blocks, in order; None without any, or with one that is no time.

    Blocks that follow each other are alike, so whole stretches of them are drawn, as long as the likeness lasts.
    """
    if not blocks or not all(math.isfinite(block) and block > 0 for block in blocks):
        return None
    logs = np.log(np.asarray(blocks, dtype=float))
    centre = float(np.median(logs))
    if len(logs) < FEWEST_BLOCKS:
        return Value(log=centre, error=0.0, drift=0.0, freedom=0)
    drift = _drift(logs)
    level = logs - drift * np.linspace(-0.5, 0.5, len(logs))
    length = _stretch(level)
    generator = np.random.default_rng(seed)
    count = -(-len(logs) // length)
    starts = generator.integers(0, len(logs), (RESAMPLES, count, 1))
    drawn = level[((starts + np.arange(length)) % len(logs)).reshape(RESAMPLES, -1)[:, : len(logs)]]
    error = float(np.median(drawn, axis=1).std())
    freedom = max(1, len(logs) // length - 1)
    # Sampling shrinks the spread of n by (n - 1) / n, which counts where there are few stretches.
    return Value(log=centre, error=error * math.sqrt((freedom + 1) / freedom), drift=drift, freedom=freedom)


def _drift(logs: np.ndarray) -> float:
    """Return how far a run's level moves from its start to its end, by the slope of a line through its blocks."""
    at = np.linspace(-0.5, 0.5, len(logs))
    return float((at * (logs - logs.mean())).sum() / (at * at).sum())


def _stretch(logs: np.ndarray) -> int:
    """Return how many blocks in a row to draw at once: twice the sum of the positive autocorrelations."""
    off = logs - logs.mean()
    power = float((off * off).sum())
    total = 1.0
    if power > 0:
        for lag in range(1, len(logs) // 4):
            share = float((off[lag:] * off[:-lag]).sum()) / power
            if share <= 0:
                break
            total += 2 * share
    return max(1, min(math.ceil(total), len(logs) // 4))


def difference(a: Sequence[Value], b: Sequence[Value]) -> Difference | None:
    """Compare two sides; None where one has no run, or where neither runs nor steps are enough to show any noise.

    The interval is the wider of two: what the steps of the runs say, and what the runs of a side differ by.
    """
    if not a or not b:
        return None
    centre = _mean([one.log for one in a]) - _mean([one.log for one in b])
    freedom = len(a) + len(b) - 2
    if freedom < 1 and min(one.freedom for one in (*a, *b)) < 1:
        return None
    drift = math.hypot(_drifted(a), _drifted(b))
    within = math.hypot(_error(a), _error(b))
    steps = t975(max(1, sum(one.freedom for one in (*a, *b)))) * within
    between = _between(a, b) if freedom >= 1 else BETWEEN
    quantile = t975(freedom) if freedom >= 1 else 1.96
    runs = quantile * between * math.sqrt(1 / len(a) + 1 / len(b))
    half = max(steps, runs) if freedom >= 1 else math.hypot(steps, runs)
    half = math.hypot(half, 1.96 * drift)
    low, high = centre - half, centre + half
    call: Call = "faster" if low > 0 else "slower" if high < 0 else "none"
    return Difference(
        ratio=math.exp(centre),
        low=math.exp(low),
        high=math.exp(high),
        detectable=math.exp(half),
        between=between,
        measured=freedom >= 1,
        drift=max((abs(one.drift) for one in (*a, *b)), default=0.0),
        call=call,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _error(side: Sequence[Value]) -> float:
    """Standard error of a side's mean from within its runs."""
    return math.sqrt(sum(one.error**2 for one in side)) / len(side)


def _drifted(side: Sequence[Value]) -> float:
    """What a drift adds: where a run stood in it is chance, so its level is uncertain by the drift's own spread."""
    return math.sqrt(sum(one.drift**2 / 12 for one in side)) / len(side)


def _between(a: Sequence[Value], b: Sequence[Value]) -> float:
    """Pooled standard deviation of the runs of each side around its mean."""
    total = sum((one.log - _mean([x.log for x in side])) ** 2 for side in (a, b) for one in side)
    return math.sqrt(total / (len(a) + len(b) - 2))

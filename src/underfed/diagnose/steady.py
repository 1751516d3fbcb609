"""Where warm-up ends: by comparing blocks of steps with the later half of the run, never by a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from underfed.diagnose.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Steady:
    """The first steady step, and whether the run became steady at all."""

    first: int
    steady: bool


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= THRESHOLDS.steady_tolerance * max(b, 1e-9)


def _behind_outliers(walls: Sequence[float], longest: float) -> int:
    """Index behind the last step of the first half that is far longer than any step of the later one."""
    limit = THRESHOLDS.steady_outlier * longest
    return max((at + 1 for at in range(len(walls) // 2) if walls[at] > limit), default=0)


def steady_from(walls: Sequence[float], burst: int = 1) -> Steady:
    """Find the first step from which on the run is steady.

    `walls` are step times in any unit; `burst` is the number of loader workers, since batches come in bursts of that
    many and a block must span two. A block is steady when both its mean and its median agree with those of the later
    half: the mean sees waits that come in bursts, the median is not misled by a rare stall. A step far above everything
    in the later half happened once and is warm-up, however calm the steps before it were.
    """
    count = len(walls)
    if count < 4:
        return Steady(min(1, max(count - 1, 0)), False)
    block = max(5, 2 * burst)
    if count < 3 * block:
        block = max(3, count // 4)
    tail = walls[count // 2 :]
    mean, middle = fmean(tail), median(tail)
    begin = _behind_outliers(walls, max(tail))
    for start in range(begin, count // 2 + 1):
        piece = walls[start : start + block]
        if _close(fmean(piece), mean) and _close(median(piece), middle):
            return Steady(start, True)
    for start in range(begin, count // 2 + 1):
        piece = walls[start : start + block]
        if _close(median(piece), middle):
            return Steady(start, False)
    return Steady(max(begin, count // 4), False)

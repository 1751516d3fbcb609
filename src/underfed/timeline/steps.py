"""Steps as torch.profiler marks them, and the device work of each by correlation: the device lags behind the marks."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from underfed.timeline.intervals import Ints
from underfed.timeline.launches import Launches
from underfed.timeline.model import ANNOTATION, PYTHON, RUNTIME, Timeline
from underfed.timeline.names import LOADER_NEXT, step_number

#: Where the marks of steps come from: torch.profiler's own marks, ranges that the script named (record_function, NVTX),
#: the ends of Optimizer.step, the loader's batches.
PROFILER, RANGE, OPTIMIZER, LOADER = "profiler", "range", "optimizer", "loader"
_RANGE = re.compile(r"^(?:train(?:ing)?[ _]?)?(?:step|iter(?:ation)?)(?:[ _#:=]*\d{1,9})?$", re.IGNORECASE)
_OPTIMIZER = "Optimizer.step#"
_FEWEST = 3


class Marks(NamedTuple):
    """Step marks of the host in the order of time: number, start, end and thread; and what made them."""

    number: Ints
    start: Ints
    end: Ints
    thread: Ints
    source: str | None

    def behind(self, first: int) -> Marks:
        """Return the marks without the first ones."""
        return Marks(self.number[first:], self.start[first:], self.end[first:], self.thread[first:], self.source)


def marks(timeline: Timeline) -> Marks:
    """Return the step marks; the same number on several threads counts once, the longest one.

    Where the profiler marked no steps, ranges of the script that are named as steps are do; else a step runs from the
    end of one Optimizer.step to the next, or else from one batch of the loader to the next.
    """
    host = timeline.host
    numbers = np.array(
        [-1 if (number := step_number(name)) is None else number for name in timeline.names] or [-1], np.int64
    )
    rows = np.flatnonzero((numbers[host.name] >= 0) & (host.kind != PYTHON) & (host.end > host.start))
    longest = rows[np.argsort(host.start[rows] - host.end[rows], kind="stable")]
    _, first = np.unique(numbers[host.name[longest]], return_index=True)
    rows = longest[first]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    if rows.size:
        thread = host.thread[rows].astype(np.int64)
        return Marks(numbers[host.name[rows]], host.start[rows], host.end[rows], thread, PROFILER)
    return (
        _named(timeline)
        or _between(timeline, _OPTIMIZER, OPTIMIZER)
        or _between(timeline, LOADER_NEXT, LOADER)
        or _NO_MARKS
    )


def _named(timeline: Timeline) -> Marks | None:
    """Steps that the script marks itself, on the thread that has most of them, where they follow one another."""
    host = timeline.host
    wanted = np.array([bool(_RANGE.match(name)) for name in timeline.names] or [False], np.bool_)
    rows = np.flatnonzero(wanted[host.name] & (host.kind == ANNOTATION) & (host.end > host.start))
    if rows.size < _FEWEST:
        return None
    threads, counts = np.unique(host.thread[rows], return_counts=True)
    rows = rows[host.thread[rows] == threads[np.argmax(counts)]]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    start, end = host.start[rows], host.end[rows]
    if rows.size < _FEWEST or (start[1:] < end[:-1]).any():
        return None
    thread = host.thread[rows].astype(np.int64)
    return Marks(np.arange(rows.size, dtype=np.int64), start, end, thread, RANGE)


_NONE: Ints = np.empty(0, np.int64)
_NO_MARKS = Marks(_NONE, _NONE, _NONE, _NONE, None)


def _between(timeline: Timeline, prefix: str, source: str) -> Marks | None:
    """Steps between the ends of rows whose name begins with `prefix`: of the name and thread that has most of them."""
    host = timeline.host
    wanted = np.array([name.startswith(prefix) for name in timeline.names] or [False], np.bool_)
    rows = np.flatnonzero(wanted[host.name] & (host.kind != PYTHON) & (host.kind != RUNTIME))
    if rows.size < _FEWEST:
        return None
    keys = host.thread[rows].astype(np.int64) * len(timeline.names) + host.name[rows]
    found, counts = np.unique(keys, return_counts=True)
    rows = rows[keys == found[np.argmax(counts)]]
    ends = np.unique(host.end[rows])
    if ends.size < _FEWEST:
        return None
    thread = np.full(ends.size - 1, int(host.thread[rows[0]]), np.int64)
    return Marks(np.arange(ends.size - 1, dtype=np.int64), ends[:-1], ends[1:], thread, source)


def warmup(found: Marks) -> int:
    """How many steps at the begin are no steady ones: much longer than the median, as the first profiled ones are."""
    walls = found.end - found.start
    first = 0
    while walls.size - first >= 4 and walls[first] > 1.5 * np.median(walls[first + 1 :]):
        first += 1
    return first


def step_of(timeline: Timeline, launches: Launches, found: Marks) -> Ints:
    """For each device event the index of the step whose mark holds its launch, or -1."""
    steps = np.full(launches.row.size, -1, np.int64)
    has = launches.row >= 0
    if found.start.size == 0 or not has.any():
        return steps
    begun = timeline.host.start[launches.row[has]]
    at = np.searchsorted(found.start, begun, side="right") - 1
    inside = (at >= 0) & (begun < found.end[at])
    steps[has] = np.where(inside, at, -1)
    return steps

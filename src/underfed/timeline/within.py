"""Which of many nested intervals is the innermost around a moment: the operator or the module around a launch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from underfed.timeline.intervals import Ints


class Nested:
    """Intervals [start, end) of some rows, by thread; those of one thread lie inside each other or apart."""

    def __init__(self, rows: NDArray[Any], start: Ints, end: Ints, thread: NDArray[Any]) -> None:
        self._threads = {
            number: _Levels(rows[mine], start[mine], end[mine])
            for number in np.unique(thread).tolist()
            for mine in [np.flatnonzero(thread == number)]
        }

    def around(self, moments: Ints, thread: NDArray[Any]) -> Ints:
        """Return the row of the innermost interval around each moment on its thread, or -1."""
        found = np.full(moments.size, -1, np.int64)
        for number, levels in self._threads.items():
            mine = np.flatnonzero(thread == number)
            if mine.size:
                found[mine] = levels.around(moments[mine])
        return found


class _Levels:
    """The intervals of one thread, by how many others are open around them."""

    def __init__(self, rows: NDArray[Any], start: Ints, end: Ints) -> None:
        keep = end > start
        rows, start, end = rows[keep], start[keep], end[keep]
        order = np.lexsort((-end, start))
        self.rows, self.start, self.end = rows[order], start[order], end[order]
        self.ends = np.sort(end)
        depth = np.arange(order.size) - np.searchsorted(self.ends, self.start, side="right")
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=-1)) + 2))
        self.levels = [by_depth[a:b] for a, b in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]

    def around(self, moments: Ints) -> Ints:
        begun = np.searchsorted(self.start, moments, side="right")
        depth = begun - np.searchsorted(self.ends, moments, side="right") - 1
        found = np.full(moments.size, -1, np.int64)
        for level, members in enumerate(self.levels):
            mine = np.flatnonzero(depth == level)
            if mine.size:
                at = np.searchsorted(self.start[members], moments[mine], side="right") - 1
                inner = members[np.maximum(at, 0)]
                # Where intervals overlap without being nested, as rounded ones can, the level's last one may be over.
                holds = (at >= 0) & (self.end[inner] > moments[mine])
                found[mine] = np.where(holds, self.rows[inner], -1)
        return found

"""Steps as torch.profiler marks them, and the device work of each by correlation: the device lags behind the marks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from underfed.timeline.intervals import Ints
from underfed.timeline.launches import Launches
from underfed.timeline.model import PYTHON, Timeline
from underfed.timeline.names import step_number


class Marks(NamedTuple):
    """Step marks of the host in the order of time: number, start, end and thread."""

    number: Ints
    start: Ints
    end: Ints
    thread: Ints


def marks(timeline: Timeline) -> Marks:
    """Return the step marks; the same number on several threads counts once, the longest one."""
    host = timeline.host
    numbers = np.array(
        [-1 if (number := step_number(name)) is None else number for name in timeline.names] or [-1], np.int64
    )
    rows = np.flatnonzero((numbers[host.name] >= 0) & (host.kind != PYTHON) & (host.end > host.start))
    longest = rows[np.argsort(host.start[rows] - host.end[rows], kind="stable")]
    _, first = np.unique(numbers[host.name[longest]], return_index=True)
    rows = longest[first]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    return Marks(numbers[host.name[rows]], host.start[rows], host.end[rows], host.thread[rows].astype(np.int64))


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

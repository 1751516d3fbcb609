"""Where the idle time lies, against how much of it there is: every piece is idle, once, and nothing is left out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from pictures_help import FIXTURES, RECORDINGS, shared

from underfed.timeline import steps as s
from underfed.timeline.device import devices
from underfed.timeline.idle import attribute, host_view
from underfed.timeline.intervals import gaps, union
from underfed.timeline.launches import match
from underfed.timeline.model import Timeline
from underfed.timeline.pieces import pieces
from underfed.trace.kineto import read


def check(timeline: Timeline) -> None:
    device = timeline.device
    view = host_view(timeline, match(timeline), s.marks(timeline).thread)
    for rows in devices(device).values():
        busy = union(device.start[rows], device.end[rows])
        first, last = int(busy.start[0]), int(busy.end[-1])
        for begin, end in ((first, last), (first - 10_000, first + (last - first) // 3), (last, last + 5_000)):
            found = pieces(view, rows, busy, begin, end)
            by_cause = {cause: ns for cause, ns in attribute(view, rows, busy, begin, end).by_cause.items() if ns}
            assert {cause: int((one.end - one.start).sum()) for cause, one in found.items()} == by_cause
            edges = sorted(pair for one in found.values() for pair in zip(one.start.tolist(), one.end.tolist()))
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(edges)), "pieces overlap"
            together = union(
                np.array([edge[0] for edge in edges], np.int64), np.array([edge[1] for edge in edges], np.int64)
            )
            free = gaps(busy, begin, end)
            assert together.start.tolist() == free.start.tolist()
            assert together.end.tolist() == free.end.tolist()


@pytest.mark.parametrize("name", RECORDINGS[::2])
def test_of_recordings(name: str) -> None:
    for path in (FIXTURES / f"{name}.before").glob("trace-*.json.gz"):
        check(read(path))


def test_of_shared_traces() -> None:
    for path in shared("traces/hta/*.json.gz", "traces/param/dlrm*.json.gz")[:12]:
        timeline = read(path)
        if timeline.device.start.size:
            check(timeline)

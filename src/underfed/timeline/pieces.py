"""The idle time of one device as spans by cause: the parts that `idle.attribute` sums up, where they lie."""

from __future__ import annotations

import numpy as np

from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.idle import HostView, _drained, _ending_launch
from underfed.timeline.intervals import NOTHING, Spans, gaps, intersect, join, subtract, union


def pieces(view: HostView, rows: Rows, busy: Spans, begin: int, end: int) -> dict[str, Spans]:
    """Return what a device leaves idle of [begin, end), by cause; `rows` are its events, `busy` their union.

    The spans are disjoint and cover the idle time exactly. Causes without any are left out.
    """
    free = gaps(busy, begin, end)
    if free.start.size == 0:
        return {}
    begun, ended, known = _ending_launch(view, rows, free)
    late = np.clip(begun, free.start, free.end)
    taken = np.clip(ended, late, free.end)
    behind = known & (begun >= free.start)
    waited = known & ~behind
    found = {
        h.UNKNOWN: union(free.start[~known], free.end[~known]),
        h.QUEUED: union(taken[waited], free.end[waited]),
    }
    launching = join(union(late[known], taken[known]), union(taken[behind], free.end[behind]))
    hosted = known & (late > free.start)
    left = union(free.start[hosted], late[hosted])
    drained = _drained(Spans(free.start[hosted], late[hosted]), view.classes.get(h.SYNC, NOTHING))
    for name in h.NAMED:
        spans = view.classes.get(name, NOTHING)
        found[name], left = intersect(left, spans), subtract(left, spans)
    after = intersect(left, intersect(drained, view.active))
    found[h.SYNC], left = join(found[h.SYNC], after), subtract(left, after)
    found[h.LAUNCH], left = join(launching, intersect(left, view.launching)), subtract(left, view.launching)
    found[h.HOST], left = intersect(left, view.active), subtract(left, view.active)
    found[h.SILENT] = left
    return {name: spans for name, spans in found.items() if spans.start.size}

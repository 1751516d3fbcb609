"""Interval algebra on half-open intervals [start, end) of integer nanoseconds.

A `Spans` is two int64 arrays of equal length; a *normal* one is sorted, disjoint, non-touching and holds no empty
interval. Every function takes any order and returns normal spans; intervals with end <= start count as empty.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Flags: TypeAlias = "NDArray[np.bool_]"


class Spans(NamedTuple):
    """Starts and ends, in ns."""

    start: Ints
    end: Ints


NOTHING = Spans(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Ints, end: Ints, *, close: int = 0) -> Spans:
    """Merge overlapping and touching intervals; holes shorter than `close` ns are filled as well."""
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if start.size == 0:
        return NOTHING
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    opens = np.empty(start.size, np.bool_)
    opens[0] = True
    np.greater(start[1:] - close if close else start[1:], reach[:-1], out=opens[1:])
    if close:
        # A hole of exactly `close` ns stays open; without `close`, touching intervals merge.
        opens[1:] |= start[1:] - reach[:-1] == close
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, start.size - 1)
    return Spans(start[first], reach[last])


def measure(spans: Spans) -> int:
    """Total length of normal spans in ns, exact even where the sum of both sides would overflow."""
    return int((spans.end - spans.start).sum())


def join(*many: Spans) -> Spans:
    """Union of several spans."""
    return union(np.concatenate([one.start for one in many]), np.concatenate([one.end for one in many]))


def gaps(spans: Spans, begin: int, end: int) -> Spans:
    """Return what normal spans leave free of the window [begin, end)."""
    if end <= begin:
        return NOTHING
    inside = clip(spans, begin, end)
    return _nonempty(np.append(np.int64(begin), inside.end), np.append(inside.start, np.int64(end)))


def clip(spans: Spans, begin: int, end: int) -> Spans:
    """Cut spans to the window [begin, end)."""
    return _nonempty(np.maximum(spans.start, begin), np.minimum(spans.end, end))


def subtract(spans: Spans, minus: Spans) -> Spans:
    """Return what normal spans keep when normal `minus` is taken away."""
    if spans.start.size == 0 or minus.start.size == 0:
        return spans
    low, high = int(spans.start[0]), int(spans.end[-1])
    return intersect(spans, gaps(minus, low, high))


def intersect(one: Spans, two: Spans) -> Spans:
    """Return what two normal spans share."""
    return overlaps(one, two)[1]


def overlaps(one: Spans, two: Spans) -> tuple[Ints, Spans]:
    """Return what each interval of `one` shares with normal `two`, and which of `one` it is; `one` may be any."""
    nothing: Ints = np.empty(0, np.int64)
    if one.start.size == 0 or two.start.size == 0:
        return nothing, NOTHING
    first = np.searchsorted(two.end, one.start, side="right")
    behind = np.searchsorted(two.start, one.end, side="left")
    counts = np.maximum(behind - first, 0)
    if not counts.any():
        return nothing, NOTHING
    left = np.repeat(np.arange(one.start.size), counts)
    offset = np.arange(left.size) - np.repeat(np.cumsum(counts) - counts, counts)
    right = np.repeat(first, counts) + offset
    start, end = np.maximum(one.start[left], two.start[right]), np.minimum(one.end[left], two.end[right])
    keep = end > start
    return left[keep], Spans(start[keep], end[keep])


def _nonempty(start: Ints, end: Ints) -> Spans:
    keep = end > start
    return Spans(start[keep], end[keep])

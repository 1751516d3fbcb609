"""Exact totals of one device: unions over all its streams, in integer ns."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from underfed.timeline.intervals import NOTHING, Flags, Spans, clip, intersect, join, measure, union
from underfed.timeline.model import KERNEL, DeviceEvents, Timeline, used
from underfed.timeline.names import is_comms

Rows: TypeAlias = "NDArray[np.intp]"


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Time of one device in ns.

    `busy_ns` is the union of kernels, copies and memsets over all streams; `compute_ns`, `copy_ns` (copies and memsets)
    and `comms_ns` are the unions of its parts, which can overlap. `exposed_comms_ns` is communication that no compute
    kernel covers, `exposed_copy_ns` copying that neither compute nor communication covers. `span_ns` is the window, or
    without one the time from the first start to the last end.
    """

    span_ns: int = 0
    busy_ns: int = 0
    compute_ns: int = 0
    copy_ns: int = 0
    comms_ns: int = 0
    exposed_comms_ns: int = 0
    exposed_copy_ns: int = 0


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The unions behind the totals."""

    busy: Spans
    compute: Spans
    copy: Spans
    comms: Spans

    def clipped(self, begin: int, end: int) -> Parts:
        """Cut all parts to a window."""
        return Parts(
            busy=clip(self.busy, begin, end),
            compute=clip(self.compute, begin, end),
            copy=clip(self.copy, begin, end),
            comms=clip(self.comms, begin, end),
        )

    def totals(self, span_ns: int | None = None) -> Totals:
        """Measure the parts."""
        comms, copy = measure(self.comms), measure(self.copy)
        covering = join(self.compute, self.comms)
        if span_ns is None:
            span_ns = int(self.busy.end[-1] - self.busy.start[0]) if self.busy.start.size else 0
        return Totals(
            span_ns=span_ns,
            busy_ns=measure(self.busy),
            compute_ns=measure(self.compute),
            copy_ns=copy,
            comms_ns=comms,
            exposed_comms_ns=comms - measure(intersect(self.comms, self.compute)),
            exposed_copy_ns=copy - measure(intersect(self.copy, covering)),
        )


def communicating(timeline: Timeline) -> Flags:
    """Flag the device events that are communication kernels."""
    names = timeline.device.name
    if names.size == 0:
        return np.empty(0, np.bool_)
    names_used = used(names)
    flags = np.zeros(int(names_used[-1]) + 1, np.bool_)
    for name in names_used.tolist():
        flags[name] = is_comms(timeline.names[name])
    found: Flags = flags[names] & (timeline.device.kind == KERNEL)
    return found


def parts(events: DeviceEvents, comms: Flags, rows: Rows) -> Parts:
    """Unions over the given rows of the device table."""
    start, end = events.start[rows], events.end[rows]
    kernel, talks = events.kind[rows] == KERNEL, comms[rows]
    compute = _union(start, end, kernel & ~talks)
    copy = _union(start, end, ~kernel)
    talking = _union(start, end, talks)
    return Parts(busy=join(compute, copy, talking), compute=compute, copy=copy, comms=talking)


def _union(start: NDArray[np.int64], end: NDArray[np.int64], flags: Flags) -> Spans:
    return union(start[flags], end[flags]) if flags.any() else NOTHING


def devices(events: DeviceEvents) -> dict[int, Rows]:
    """Rows of each device, by its number."""
    if events.device.size == 0:
        return {}
    if (events.device == events.device[0]).all():
        return {int(events.device[0]): np.arange(events.device.size)}
    return {number: np.flatnonzero(events.device == number) for number in np.unique(events.device).tolist()}

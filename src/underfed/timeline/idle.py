"""Why a device had nothing to do: each gap of its busy time is split by what the launching side was at."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.intervals import NOTHING, Flags, Ints, Spans, gaps, intersect, join, measure, subtract, union
from underfed.timeline.launches import Launches, copies_behind, launch_flags
from underfed.timeline.model import ANNOTATION, OPERATOR, OVERHEAD, PYTHON, RUNTIME, Timeline, used
from underfed.timeline.names import LOADER_NEXT

#: Launches, or any rows at all, further apart than this are no longer one stretch of launching or of host work.
PAUSE_NS = 1_000_000
#: A wait for the loader from which it was not ready: a batch that lies in the queue takes far less.
LONG_WAIT_NS = 5_000_000


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """One gap of a device; `cause` holds most of it."""

    start_ns: int
    length_ns: int
    cause: str
    before: str | None = None


class HostView(NamedTuple):
    """A trace with its launches, and what the threads that launch were at: spans by class, of launching calls, and of
    anything at all; and where the loader's workers were started: the silence, and the waits right behind it.
    """

    timeline: Timeline
    launches: Launches
    classes: dict[str, Spans]
    launching: Spans
    active: Spans
    started: tuple[Spans, Spans] = (NOTHING, NOTHING)


def host_view(timeline: Timeline, launches: Launches, extra_threads: Ints) -> HostView:
    """Collect what the launching threads did; `extra_threads` (those with step marks) count as launching."""
    host = timeline.host
    if host.start.size == 0:
        return HostView(timeline, launches, {}, NOTHING, NOTHING)
    launched = launches.row[launches.row >= 0]
    threads = used(np.concatenate([host.thread[launched].astype(np.int64), extra_threads]))
    # Without any launch all threads count, so that waits are still seen.
    ours = np.isin(host.thread, threads) if threads.size else np.ones(host.start.size, np.bool_)
    cause = _causes(timeline, launches)
    classes = {}
    for number, name in enumerate(h.NAMED):
        rows = np.flatnonzero(ours & (cause == number))
        if rows.size:
            classes[name] = union(host.start[rows], host.end[rows])
    work = np.flatnonzero(ours & ((host.kind == OPERATOR) | (host.kind == RUNTIME)))
    started = _workers_started(timeline, ours, work)
    begun = started[0]
    if begun.start.size:
        classes[h.DATA] = join(classes[h.DATA], begun)
    calls = np.flatnonzero(ours & launch_flags(timeline))
    return HostView(
        timeline,
        launches,
        classes,
        union(host.start[calls], host.end[calls], close=PAUSE_NS),
        union(host.start[work], host.end[work], close=PAUSE_NS),
        started,
    )


def _workers_started(timeline: Timeline, ours: Flags, work: Rows) -> tuple[Spans, Spans]:
    """Silence right before a long wait for a loader with workers, and those waits: its iterator was being made, which
    leaves no row.
    """
    host = timeline.host
    named = np.array([_with_workers(name) for name in timeline.names] or [False], np.bool_)
    rows = np.flatnonzero(ours & named[host.name] & (host.kind != PYTHON) & (host.end - host.start >= LONG_WAIT_NS))
    if rows.size == 0 or work.size == 0:
        return NOTHING, NOTHING
    order = np.argsort(host.start[work], kind="stable")
    starts, reach = host.start[work][order], np.maximum.accumulate(host.end[work][order])
    at = np.searchsorted(starts, host.start[rows], side="left") - 1
    silent = (at >= 0) & (host.start[rows] - reach[at] >= PAUSE_NS)
    begins = host.start[rows][silent]
    return union(reach[at][silent], begins), union(begins, host.end[rows][silent])


def _with_workers(name: str) -> bool:
    return name.startswith(LOADER_NEXT) and "_SingleProcess" not in name


def _causes(timeline: Timeline, launches: Launches) -> Ints:
    """Index into NAMED of each host row, or -1."""
    host = timeline.host
    number = {name: at for at, name in enumerate(h.NAMED)}
    calls = np.array([number.get(h.runtime_class(name) or "", -1) for name in timeline.names] or [-1], np.int64)
    ranges = np.array([number.get(h.range_class(name) or "", -1) for name in timeline.names] or [-1], np.int64)
    named = np.isin(host.kind, (OPERATOR, ANNOTATION, PYTHON))
    cause = np.where(host.kind == RUNTIME, calls[host.name], np.where(named, ranges[host.name], -1))
    cause[host.kind == OVERHEAD] = -1
    behind = copies_behind(timeline, launches)
    cause[behind["HtoD"]] = number[h.TRANSFER]
    # A copy to the host that waits for it is a sync, and one that does not is over at once.
    cause[behind["DtoH"]] = number[h.SYNC]
    return cause


class Attribution(NamedTuple):
    """Idle ns by cause, and the gaps behind them."""

    by_cause: dict[str, int]
    free: Spans


def attribute(view: HostView, rows: Rows, busy: Spans, begin: int, end: int) -> Attribution:
    """Split the idle time of one device in [begin, end) by cause; the parts add up to it exactly.

    A gap ends with a device event. Up to the begin of its launch the host is the cause, and what it was at names it;
    behind that, the launch itself. An event launched before the gap began was queued. A gap at the end of the window
    has no such event, and the host is the cause of all of it.
    """
    free = gaps(busy, begin, end)
    by_cause = dict.fromkeys(h.CAUSES, 0)
    if free.start.size == 0:
        return Attribution(by_cause, free)
    begun, ended, known = _ending_launch(view, rows, free)
    by_cause[h.UNKNOWN] = int((free.end - free.start)[~known].sum())
    late = np.clip(begun, free.start, free.end)
    taken = np.clip(ended, late, free.end)
    behind = known & (begun >= free.start)
    by_cause[h.LAUNCH] += int((taken - late)[known].sum() + (free.end - taken)[behind].sum())
    by_cause[h.QUEUED] = int((free.end - taken)[known & ~behind].sum())
    hosted = known & (late > free.start)
    left = Spans(free.start[hosted], late[hosted])
    split_host(by_cause, view, left, _drained(left, view.classes.get(h.SYNC, NOTHING)))
    return Attribution(by_cause, free)


def split_host(by_cause: dict[str, int], view: HostView, left: Spans, drained: Spans = NOTHING) -> None:
    """Add time in which the host was what counted to its causes, by what the host was at.

    `drained` is where filling a queue again is the price of the sync that let it run dry.
    """
    for name in h.NAMED:
        spans = view.classes.get(name)
        if spans is not None and left.start.size:
            by_cause[name] += measure(intersect(left, spans))
            left = subtract(left, spans)
    # A queue that a sync let run dry: what the host needs to fill it again is the price of that sync.
    after = intersect(left, intersect(drained, view.active))
    by_cause[h.SYNC] += measure(after)
    left = subtract(left, after)
    for name, spans in ((h.LAUNCH, view.launching), (h.HOST, view.active)):
        by_cause[name] += measure(intersect(left, spans))
        left = subtract(left, spans)
    by_cause[h.SILENT] += measure(left)


def _drained(hosted: Spans, syncs: Spans) -> Spans:
    """Gaps that began while the host waited for the device, no further than a pause behind the end of that wait."""
    if syncs.start.size == 0 or hosted.start.size == 0:
        return NOTHING
    at = np.searchsorted(syncs.start, hosted.start, side="right") - 1
    waiting = (at >= 0) & (syncs.end[at] > hosted.start)
    reach = np.minimum(hosted.end, syncs.end[at] + PAUSE_NS)
    return union(hosted.start[waiting], reach[waiting])


def _ending_launch(view: HostView, rows: Rows, free: Spans) -> tuple[Ints, Ints, Flags]:
    """Begin and end of the launch of the event that ends each gap, and whether it is known."""
    timeline, launches = view.timeline, view.launches
    # Of events that start at one moment, the one whose launch is known, and began first, says what the gap waited for.
    asked = launches.row[rows]
    asked_at = np.where(asked >= 0, timeline.host.start[asked], 0) if timeline.host.start.size else asked
    order = rows[np.lexsort((asked_at, asked < 0, timeline.device.start[rows]))]
    starts = timeline.device.start[order]
    at = np.searchsorted(starts, free.end, side="left")
    exists = at < starts.size
    ends_gap = exists.copy()
    ends_gap[exists] = starts[at[exists]] == free.end[exists]
    call = np.full(free.start.size, -1, np.int64)
    call[ends_gap] = launches.row[order[at[ends_gap]]]
    known = call >= 0
    host = timeline.host
    begun, ended = free.end.copy(), free.end.copy()
    begun[known], ended[known] = host.start[call[known]], np.maximum(host.end[call[known]], host.start[call[known]])
    return begun, ended, known | ~ends_gap


def longest(view: HostView, rows: Rows, free: Spans, count: int) -> list[Gap]:
    """Return the longest gaps, longest first."""
    timeline = view.timeline
    order = np.argsort(free.start - free.end, kind="stable")[:count]
    # Only what ends one of these gaps counts.
    rows = rows[np.isin(timeline.device.start[rows], free.end[order])]
    found = []
    for at in order.tolist():
        begin, stop = int(free.start[at]), int(free.end[at])
        split = attribute(view, rows, NOTHING, begin, stop).by_cause
        following = rows[timeline.device.start[rows] == stop]
        name = timeline.names[timeline.device.name[following[0]]] if following.size else None
        cause = max(split, key=lambda key: split[key])
        found.append(Gap(start_ns=begin, length_ns=stop - begin, cause=cause, before=name))
    return found

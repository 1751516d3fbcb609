"""The critical path of one rank: what the end of its last step waited for, moment by moment, back to the first.

A kernel starts when the one before it on its stream is done, when one on another stream that it waits for is done, or
when the host launches it. The host goes on when a call that waits for the device returns. The walk goes backwards from
the end along whichever came last, so that every moment has exactly one entry. Dependencies between streams are those
that the trace recorded, or else taken from the times; host threads count as one, since they wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.idle import HostView, split_host
from underfed.timeline.intervals import Flags, Ints, union
from underfed.timeline.model import KERNEL, RUNTIME
from underfed.timeline.streams import recorded_waits

#: A kernel that starts later than this behind its launch and the one before it waited for something else.
LATENCY_NS = 20_000
#: Copies whose call took longer than this blocked the host.
BLOCKED_NS = 100_000
#: Moves of the walk; more would take more than about half a second.
MOVES_MOST = 60_000
DEVICE_CLASSES = ("compute", "comms", "copy")


class PathFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the path consists of, in ns: `by_class` adds up to `span_ns` exactly.

    `compute`, `comms`, `copy` are device work; `queued` is the time between a kernel and the one that it waited for;
    `launch` is from a launching call to its kernel; the others are the host, by the causes of idle time. `whole` is
    False where the walk was cut short, and covers the end of the trace only.
    """

    span_ns: int
    by_class: dict[str, int]
    whole: bool


class _Scene(NamedTuple):
    start: Sequence[int]
    end: Sequence[int]
    kind: Sequence[int]
    launch: Sequence[int]
    before: Sequence[int]
    by_end: Sequence[int]
    recorded: Sequence[int]
    ends: Ints
    sync_start: Ints
    sync_end: Ints


def critical_path(view: HostView, rows: Rows, comms: Flags, begin: int, end: int) -> PathFacts | None:
    """Walk back from `end` to `begin`; None where there is no device work or no launch to go by."""
    if end <= begin or rows.size == 0 or not (view.launches.row[rows] >= 0).any():
        return None
    scene = _scene(view, rows, comms, begin, end)
    found = dict.fromkeys((*DEVICE_CLASSES, *h.CAUSES), 0)
    hosted: list[tuple[int, int]] = []
    at, now = _last_ended(scene, end), end
    on_host = at < 0 or scene.end[at] < end
    for _ in range(MOVES_MOST):
        if now <= begin:
            break
        if on_host:
            at, now = _host(scene, found, hosted, (now, begin))
            on_host = at < 0
            continue
        at, now, on_host = _device(scene, found, at, (now, begin))
    whole = now <= begin
    spans = np.array(sorted(hosted), np.int64).reshape(-1, 2)
    by_cause = dict.fromkeys(h.CAUSES, 0)
    split_host(by_cause, view, union(spans[:, 0], spans[:, 1]))
    for name, length in by_cause.items():
        found[name] += length
    return PathFacts(span_ns=end - max(begin, now), by_class={k: v for k, v in found.items() if v}, whole=whole)


def _scene(view: HostView, rows: Rows, comms: Flags, begin: int, end: int) -> _Scene:
    device, host = view.timeline.device, view.timeline.host
    inside = rows[(device.end[rows] > begin) & (device.start[rows] < end) & (device.end[rows] > device.start[rows])]
    order = inside[np.lexsort((device.end[inside], device.start[inside]))]
    start, stop = device.start[order], np.minimum(device.end[order], end)
    kind = np.where(device.kind[order] != KERNEL, 2, np.where(comms[order], 1, 0))
    call = view.launches.row[order]
    launch = np.where(call >= 0, host.start[call], -1)
    by_stream = np.lexsort((np.arange(order.size), device.stream[order]))
    before = np.full(order.size, -1, np.int64)
    same = device.stream[order][by_stream][1:] == device.stream[order][by_stream][:-1]
    before[by_stream[1:][same]] = by_stream[:-1][same]
    by_end = np.argsort(stop, kind="stable")
    waits = _waits(view)
    # Of a long trace the walk sees a part: a view gives single numbers as Python's own without making all of them.
    return _Scene(
        start=_viewed(start),
        end=_viewed(stop),
        kind=_viewed(kind),
        launch=_viewed(launch),
        before=_viewed(before),
        by_end=_viewed(by_end),
        recorded=_viewed(recorded_waits(view.timeline, order, launch, stop)),
        ends=stop[by_end],
        sync_start=waits[0],
        sync_end=waits[1],
    )


def _viewed(column: NDArray[Any]) -> Any:
    return memoryview(np.ascontiguousarray(column))  # type: ignore[arg-type]  # an array is a buffer


def _waits(view: HostView) -> tuple[Ints, Ints]:
    """Calls in which the host waited for the device: syncs, and copies that blocked."""
    host = view.timeline.host
    syncs = view.classes.get(h.SYNC)
    starts = [syncs.start] if syncs is not None else []
    ends = [syncs.end] if syncs is not None else []
    copies = view.classes.get(h.TRANSFER)
    if copies is not None:
        long = copies.end - copies.start > BLOCKED_NS
        starts.append(copies.start[long])
        ends.append(copies.end[long])
    if not starts or not (host.kind == RUNTIME).any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    joined = union(np.concatenate(starts), np.concatenate(ends))
    return joined.start, joined.end


def _last_ended(scene: _Scene, moment: int) -> int:
    at = int(np.searchsorted(scene.ends, moment, side="right")) - 1
    return scene.by_end[at] if at >= 0 else -1


def _host(
    scene: _Scene, found: dict[str, int], hosted: list[tuple[int, int]], window: tuple[int, int]
) -> tuple[int, int]:
    """Go back on the host to the last call that waited for the device; the event that it waited for, or -1."""
    now, begin = window
    at = int(np.searchsorted(scene.sync_end, now, side="right")) - 1
    if at < 0 or int(scene.sync_end[at]) <= begin:
        hosted.append((begin, now))
        return -1, begin
    started, returned = int(scene.sync_start[at]), int(scene.sync_end[at])
    if returned < now:
        hosted.append((returned, now))
    event = _last_ended(scene, returned)
    if event >= 0 and scene.end[event] > max(started, begin):
        found[h.SYNC] += returned - scene.end[event]
        return event, scene.end[event]
    # Nothing ended while it waited: it is a call like any other.
    until = max(started, begin)
    hosted.append((until, returned))
    return -1, until


def _device(scene: _Scene, found: dict[str, int], at: int, window: tuple[int, int]) -> tuple[int, int, bool]:
    """Go back over one device event to what it waited for: an event, or the host."""
    now, begin = window
    start = max(begin, min(scene.start[at], now))
    found[DEVICE_CLASSES[scene.kind[at]]] += now - start
    if start <= begin:
        return at, begin, False
    launch, before = scene.launch[at], scene.before[at]
    behind = min(scene.end[before], start) if before >= 0 else -1
    known = scene.recorded[at]
    if known >= 0 and max(behind, launch) < scene.end[known] <= start:
        before, behind = known, scene.end[known]
    elif known < 0 and start - max(behind, launch) > LATENCY_NS:
        # Neither its stream nor its launch explains when it started: it waited for another stream.
        other = _last_ended(scene, start)
        if other >= 0 and other != at and scene.end[other] > max(behind, launch) and scene.start[other] < start:
            before, behind = other, scene.end[other]
    if launch < 0 and before < 0:
        found[h.UNKNOWN] += start - begin
        return at, begin, False
    if before >= 0 and behind >= launch:
        found[h.QUEUED] += start - max(behind, begin)
        return before, max(behind, begin), False
    call = max(begin, min(launch, start))
    found[h.LAUNCH] += start - call
    return at, call, True

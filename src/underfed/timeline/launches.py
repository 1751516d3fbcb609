"""Which call of the host launched which device event, how late the device took it up, and how much was queued."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from underfed.timeline.device import Rows
from underfed.timeline.hostcalls import is_launch
from underfed.timeline.intervals import Flags, Ints
from underfed.timeline.model import MEMCPY, MISSING, RUNTIME, DeviceEvents, Timeline
from underfed.timeline.names import copy_direction


class Launches(NamedTuple):
    """One entry a device event: the row of the host call that launched it, or -1."""

    row: Ints


class LaunchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Launches in a trace. Delay: from the end of the launching call to the start on the device. Depth: device events
    launched but not finished when a launch begins. `starved_share` is the share of launches that found none.
    """

    count: int = 0
    matched: int = 0
    unmatched_events: int = 0
    graphs: int = 0
    host_ns: int = 0
    delay_p10_ns: int | None = None
    delay_p50_ns: int | None = None
    delay_p90_ns: int | None = None
    depth_p50: int | None = None
    depth_p90: int | None = None
    starved_share: float | None = None


def match(timeline: Timeline) -> Launches:
    """Find the call behind each device event by correlation. Where several calls share one, a launching call wins."""
    host, device = timeline.host, timeline.device
    row = np.full(device.start.size, -1, np.int64)
    calls = np.flatnonzero((host.kind == RUNTIME) & (host.correlation != MISSING))
    if calls.size == 0 or row.size == 0:
        return Launches(row)
    launching = launch_flags(timeline)[calls]
    keys = host.correlation[calls]
    # Sorted by correlation, the launching calls first within each.
    order = np.lexsort((~launching, keys))
    calls, keys = calls[order], keys[order]
    at = np.searchsorted(keys, device.correlation, side="left")
    found = at < keys.size
    found[found] = keys[at[found]] == device.correlation[found]
    found &= device.correlation != MISSING
    row[found] = calls[at[found]]
    return Launches(row)


def launch_flags(timeline: Timeline) -> Flags:
    """Flag the host rows that put work on a device."""
    flags = np.array([is_launch(name) for name in timeline.names] or [False], np.bool_)
    found: Flags = flags[timeline.host.name] & (timeline.host.kind == RUNTIME)
    return found


def copies_behind(timeline: Timeline, launches: Launches) -> dict[str, Ints]:
    """Host rows that started a copy, by its direction."""
    device = timeline.device
    copies = np.flatnonzero((device.kind == MEMCPY) & (launches.row >= 0))
    found: dict[str, Ints] = {}
    for direction in ("HtoD", "DtoH"):
        names = np.array([copy_direction(name) == direction for name in timeline.names] or [False], np.bool_)
        found[direction] = launches.row[copies[names[device.name[copies]]]]
    return found


def launch_facts(timeline: Timeline, launches: Launches, rows: Rows, calls: Rows) -> LaunchFacts:
    """Sum up the launching calls `calls` and the device events `rows`."""
    host, device = timeline.host, timeline.device
    by = launches.row[rows]
    has = by >= 0
    graph_names = np.array(["GraphLaunch" in name for name in timeline.names] or [False], np.bool_)
    graphs = int(graph_names[host.name[calls]].sum())
    host_ns = int((host.end[calls] - host.start[calls]).clip(min=0).sum())
    matched = rows[has]
    if matched.size == 0:
        return LaunchFacts(count=int(calls.size), unmatched_events=int(rows.size), graphs=graphs, host_ns=host_ns)
    begun, ended = host.start[by[has]], host.end[by[has]]
    delay = np.maximum(device.start[matched] - ended, 0)
    depth = _depth(device, matched, begun)
    low, middle, high = (int(value) for value in np.percentile(delay, (10, 50, 90)))
    return LaunchFacts(
        count=int(calls.size),
        matched=int(np.count_nonzero(np.bincount(by[has]))),
        unmatched_events=int((~has).sum()),
        graphs=graphs,
        host_ns=host_ns,
        delay_p10_ns=low,
        delay_p50_ns=middle,
        delay_p90_ns=high,
        depth_p50=int(np.percentile(depth, 50)),
        depth_p90=int(np.percentile(depth, 90)),
        starved_share=float((depth == 0).mean()),
    )


def _depth(device: DeviceEvents, rows: Rows, begun: Ints) -> Ints:
    """Events launched before, but not finished by, the begin of each launch."""
    moments = np.sort(begun)
    finished = np.searchsorted(np.sort(device.end[rows]), moments, side="right")
    launched = np.searchsorted(moments, moments, side="left")
    depth: Ints = np.maximum(launched - finished, 0)
    return depth

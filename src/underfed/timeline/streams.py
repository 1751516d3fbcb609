"""Which device event waited for which one on another stream, where the trace recorded that."""

from __future__ import annotations

import numpy as np

from underfed.timeline.device import Rows
from underfed.timeline.intervals import Ints
from underfed.timeline.model import MISSING, RUNTIME, Timeline


def recorded_waits(timeline: Timeline, rows: Rows, launch: Ints, end: Ints) -> Ints:
    """For each of the device events `rows` the place among them of the one it waited for, or -1.

    `launch` and `end` are theirs. The first event that is launched on a stream behind its wait waits for the last one
    that was launched on the other stream before the event was recorded; of several, for the one that ends last.
    """
    found = np.full(rows.size, -1, np.int64)
    host, device = timeline.host, timeline.device
    calls = np.flatnonzero((host.kind == RUNTIME) & (host.correlation != MISSING))
    if not timeline.stream_waits or calls.size == 0:
        return found
    begun = dict(zip(host.correlation[calls].tolist(), host.start[calls].tolist(), strict=True))
    order = np.argsort(launch, kind="stable")
    on = {}
    for wait in timeline.stream_waits:
        waits_at, recorded_at = begun.get(wait.call), begun.get(wait.recorded)
        if waits_at is None or recorded_at is None or recorded_at > waits_at:
            continue
        for stream in (wait.stream, wait.on_stream):
            if (wait.device, stream) not in on:
                mine = (device.device[rows] == wait.device) & (device.stream[rows] == stream)
                on[wait.device, stream] = order[mine[order]]
        waiting, others = on[wait.device, wait.stream], on[wait.device, wait.on_stream]
        at = int(np.searchsorted(launch[waiting], waits_at, side="left"))
        before = int(np.searchsorted(launch[others], recorded_at, side="left")) - 1
        if at < waiting.size and before >= 0:
            one, other = int(waiting[at]), int(others[before])
            if found[one] < 0 or end[other] > end[found[one]]:
                found[one] = other
    return found

"""What a step would take without one cause of waiting: the dependency graph replayed with that cause gone."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np

from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.graph import WORK, Change, Floats, Graph
from underfed.timeline.idle import HostView
from underfed.timeline.intervals import Flags, Ints
from underfed.timeline.model import KERNEL
from underfed.timeline.names import copy_direction, copy_pinned
from underfed.timeline.steps import Marks

#: Device events that are replayed: of whole steps, or of a step that holds more of them. Twice as many would take twice
#: as long, some tenths of a second.
EVENTS_MOST, PART_MOST = 10_000, 3_000
#: A cause that takes less of the host's or the device's time than this is left out.
WORTH = 0.01
#: Rounds in which the host's own speed is found.
_ROUNDS = 6
#: The host works at least this fast without a profiler, as a share of the traced time: see trace/dilation.py.
LEAST_HOST = 0.38
#: What is left of the host's work where launching costs little, as with CUDA graphs: inputs, and the loop itself.
LEFT_OF_LAUNCHING = 0.25
#: What copies from pinned memory reach at least on a link of today, in 1e9 bytes a second.
PINNED_GB_S = 20.0
#: With more of the step than this outside of the trace, nothing is expected.
UNSEEN = 0.25
COMMS = "comms"


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """A step in ns without one cause: at the least (`best_ns`), and between two values that are likely.

    `now_ns` is the step that these are held against. `expected_ns` is None where nothing says how much of the cause can
    go, or where most of the step is not in the trace.
    """

    cause: str
    now_ns: float
    best_ns: float
    expected_ns: tuple[float, float] | None

    @property
    def at_most(self) -> float:
        """The factor that removing the cause gains at most."""
        return max(1.0, self.now_ns / max(self.best_ns, 1.0))

    @property
    def expected(self) -> tuple[float, float] | None:
        """The factor that it is likely to gain, least and most."""
        if self.expected_ns is None:
            return None
        low, high = self.expected_ns
        return max(1.0, self.now_ns / max(high, 1.0)), max(1.0, self.now_ns / max(low, 1.0))


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """All causes of one trace. `traced_ns` is the traced step, `replayed_ns` the same one replayed, over `steps` of
    them, and `untraced_ns` the step that the causes are taken from. `whole` is False where only the first steps, or a
    part of one, were replayed.
    """

    steps: float
    traced_ns: float
    replayed_ns: float
    untraced_ns: float
    whole: bool
    causes: list[WhatIf]


class Stretch(NamedTuple):
    """Whole steps, or the part of one, that are replayed."""

    rows: Rows
    begin: int
    end: int
    steps: float
    whole: bool


def stretch(view: HostView, rows: Rows, marks: Marks) -> Stretch | None:
    """Return the first steps that hold EVENTS_MOST events, or the part of one that holds PART_MOST; without marks all
    of the trace is one step. None where it shows no launches.
    """
    if rows.size == 0 or not (view.launches.row[rows] >= 0).any():
        return None
    host = view.timeline.host
    call = view.launches.row[rows]
    launch = np.where(call >= 0, host.start[call], view.timeline.device.start[rows])
    number = max(1, marks.start.size)
    begin, end = int(launch.min()), int(host.end[call[call >= 0]].max())
    if marks.start.size:
        begin, end = int(marks.start[0]), int(marks.end[-1])
    if end <= begin:
        return None
    if rows.size <= EVENTS_MOST:
        return Stretch(rows, begin, end, number, True)
    moments = np.sort(launch)
    taken = int(np.searchsorted(marks.end, moments[EVENTS_MOST], side="right"))
    if taken:
        end = int(marks.end[taken - 1])
        return Stretch(rows[launch < end], begin, end, taken, False)
    stop = int(moments[PART_MOST])
    return Stretch(rows[launch < stop], begin, stop, number * (stop - begin) / max(1, end - begin), False)


def what_if(view: HostView, comms: Flags, part: Stretch, target: float) -> Replays:
    """Replay a stretch without each cause in turn.

    `target` is the untraced step in ns: the host's own work is shortened until the replayed step takes that, since it
    is the host that a profiler slows.
    """
    graph = Graph(view, part.rows, part.begin, part.end)
    device = view.timeline.device
    talks = comms[graph.rows] & (device.kind[graph.rows] == KERNEL)
    plain = graph.replay(Change()) / part.steps
    likely = _host_speed(graph, target * part.steps)
    least = min(likely, LEAST_HOST)
    scene = _Scene(graph, talks, np.isin(device.name[graph.rows], _uploads(view)), device.bytes[graph.rows])
    now = max(graph.period(Change(host=likely)) / part.steps, 1.0)
    more = max(0.0, target - now)
    found = []
    for cause in (*h.NAMED, h.SILENT, h.LAUNCH, COMMS):
        if changes := _changes(scene, cause, least, likely):
            ends = [graph.period(one) / part.steps for one in changes]
            found.append(_held(cause, ends, now, target, more))
    found.sort(key=lambda one: one.best_ns)
    return Replays(
        steps=part.steps,
        traced_ns=(part.end - part.begin) / part.steps,
        replayed_ns=plain,
        untraced_ns=target,
        whole=part.whole,
        causes=found,
    )


def _held(cause: str, ends: list[float], now: float, target: float, more: float) -> WhatIf:
    """Hold replayed steps against the untraced one, `target`, of which the trace does not show `more`."""
    # What it does not show may go with the cause by its share, or stay. Where the trace shows longer waits than there
    # are without the profiler, the best is as much shorter as they are.
    best = (min(ends) + more * min(1.0, min(ends) / now)) * min(1.0, target / now)
    expected = None
    if cause != COMMS and more <= UNSEEN * target:
        expected = min(best, target), min(max(ends) + more, target)
    return WhatIf(cause=cause, now_ns=target, best_ns=min(best, target), expected_ns=expected)


class _Scene(NamedTuple):
    graph: Graph
    talks: Flags
    uploads: Flags
    bytes: Ints


def _uploads(view: HostView) -> list[int]:
    """Names of copies to the device from memory that is not pinned, or not said to be."""
    names = view.timeline.names
    return [at for at, name in enumerate(names) if copy_direction(name) == "HtoD" and not copy_pinned(name)]


def _host_speed(graph: Graph, target: float) -> float:
    """Factor on the host's work with which the stretch takes `target` ns, as near as it can; never above 1."""
    high, taken = 1.0, graph.period(Change())
    if taken <= 1.001 * target:
        return 1.0
    low, least = 0.0, graph.period(Change(host=0.0))
    # The more the host works the longer it takes, and ever more so: a straight line between two points errs upwards.
    for _ in range(_ROUNDS):
        if least >= target or taken - target < 0.005 * target:
            break
        guess = low + (high - low) * (target - least) / max(taken - least, 1.0)
        found = graph.period(Change(host=guess))
        if found > target:
            high, taken = guess, found
        else:
            low, least = guess, found
        if abs(found - target) < 0.005 * target:
            return guess
    return low


def _changes(scene: _Scene, cause: str, least: float, likely: float) -> list[Change]:
    """What to replay without a cause: first the best that there can be, then what is likely. None where it takes too
    little to matter.
    """
    graph = scene.graph
    worth = WORTH * (graph.end - graph.begin)
    if cause == COMMS:
        if graph.length[scene.talks].sum() < worth:
            return []
        # How much of a collective can be hidden or saved is for the rules to say.
        return [Change(host=least, gaps=False, lengths=np.where(scene.talks, 0.0, 1.0))]
    if cause == h.LAUNCH:
        if graph.host_ns(WORK) < worth:
            return []
        return [Change(host=0.0, gaps=False), Change(host=LEFT_OF_LAUNCHING * likely, turns=True)]
    spent, waits = graph.host_ns(cause), frozenset[str]()
    if cause in (h.SYNC, h.TRANSFER):
        waiting = graph.waits.bound & (graph.waits.copies == (cause == h.TRANSFER))
        spent += int((graph.waits.end - graph.waits.start)[waiting].sum())
        waits = frozenset({cause})
    if spent < worth:
        return []
    gone = frozenset({cause})
    best = Change(gone, least, waits, gaps=False)
    usual = Change(gone, likely, waits, turns=True)
    if cause == h.TRANSFER:
        # Memory that is not pinned is also given back to the system, copy by copy.
        best = replace(best, gone=gone | {h.SILENT}, lengths=np.where(scene.uploads, 0.0, 1.0))
        usual = replace(usual, lengths=_pinned(scene))
    return [best, usual]


def _pinned(scene: _Scene) -> Floats:
    """Factors on the lengths of copies from pageable memory, had it been pinned."""
    length = np.maximum(scene.graph.length, 1)
    moved = np.where(scene.bytes > 0, scene.bytes / PINNED_GB_S / length, 1.0)
    return np.where(scene.uploads, np.minimum(moved, 1.0), 1.0)

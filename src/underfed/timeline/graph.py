"""The dependency graph of a trace, and its replay: when everything would have happened had something been otherwise.

The host goes through its time in order and launches device events; an event starts when its launch has arrived, the
event before it on its stream is done, and one on another stream that it waits for is done; a call that waits for the
device returns when the event that it waited for is done. Replayed without a change, the graph gives the trace back to
the nanosecond, since each edge keeps the time that it took. Lengths of device events, collectives included, stay.

Which event on another stream was waited for is taken from what the trace recorded (`cuda_sync` rows), or else, as for
syncs, from the times. Threads of the host count as one, since they wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.idle import HostView
from underfed.timeline.intervals import NOTHING, Flags, Ints, Spans, clip, intersect, measure, subtract, union
from underfed.timeline.model import RUNTIME
from underfed.timeline.streams import recorded_waits

#: An event that starts later than this behind its launch and its stream waited for something else.
LATENCY_NS = 20_000
#: Copies whose call took longer than this blocked the host.
BLOCKED_NS = 100_000
#: What a call that waits takes of the host when it has nothing to wait for.
CALL_NS = 4_000

#: Host time that is no wait: operators and calls, which a profiler stretches.
WORK = "work"

Floats: TypeAlias = NDArray[np.float64]


class HostTime:
    """The host's own time up to a moment, with parts of it left out or shortened; waits for the device take none."""

    def __init__(self, parts: list[tuple[Spans, float]]) -> None:
        self._parts = [(spans, _before(spans), factor) for spans, factor in parts if spans.start.size and factor]

    def at(self, moments: Ints) -> Floats:
        """Host time in ns up to each moment."""
        total = np.zeros(moments.size)
        for spans, before, factor in self._parts:
            at = np.searchsorted(spans.start, moments, side="right") - 1
            here = np.maximum(at, 0)
            into = np.minimum(moments, spans.end[here]) - spans.start[here]
            total += factor * np.where(at >= 0, before[here] + into, 0)
        return total


def _before(spans: Spans) -> Ints:
    length = spans.end - spans.start
    found: Ints = np.cumsum(length) - length
    return found


class Wait(NamedTuple):
    """Calls that wait for the device: begin, end, the event that ended them, and whether they copy. Where `bound` is
    False the host did not wait in one, since the last event before it was over; had it come sooner, it would have.
    """

    start: Ints
    end: Ints
    event: Ints
    copies: Flags
    bound: Flags


@dataclass(frozen=True)
class Change:
    """What is otherwise. `gone` are classes of host time that take none (`work` is all that the profiler stretches);
    `host` is the factor on that work; `waits` are the kinds of wait that do not happen (`sync`, `transfer`); `lengths`
    are factors on the lengths of device events. `gaps` False: what follows on a stream starts at once. `turns` True:
    streams wait for each other wherever they took turns, and the host in every sync, and not only where that was seen
    to bind.
    """

    gone: frozenset[str] = frozenset()
    host: float = 1.0
    waits: frozenset[str] = frozenset()
    lengths: Floats | None = None
    gaps: bool = True
    turns: bool = False


class Graph:
    """The events `rows` that the host launched in a stretch [begin, end) of its time, with what they waited for."""

    def __init__(self, view: HostView, rows: Rows, begin: int, end: int) -> None:
        device, host = view.timeline.device, view.timeline.host
        self.begin, self.end = begin, end
        self.rows = rows[np.lexsort((device.end[rows], device.start[rows]))]
        self.start = device.start[self.rows]
        self.length = (device.end[self.rows] - self.start).clip(min=0)
        self.stop = self.start + self.length
        call = view.launches.row[self.rows]
        self.launched = call >= 0
        self.launch = np.where(self.launched, host.start[call] if host.start.size else 0, begin)
        # What was launched before the stretch is there when it begins.
        self.launch = np.where(self.launched, np.maximum(self.launch, begin), begin)
        self.recorded = recorded_waits(view.timeline, self.rows, self.launch, self.stop)
        self.before, self.last_of_stream = _on_streams(device.device[self.rows], device.stream[self.rows])
        self._edges()
        self.waits = self._waits(view)
        self.classes = self._host_classes(view)

    def _edges(self) -> None:
        """Lags of the edges: own ones where they bound, else the usual ones as far as what happened allows."""
        count = self.start.size
        has = self.before >= 0
        free = np.where(has, self.stop[self.before], self.begin)
        behind_launch, behind_stream = self.start - self.launch, self.start - free
        queued = has & (free > self.launch + LATENCY_NS) & (behind_stream >= 0)
        queued &= behind_stream <= LATENCY_NS  # others waited for something else
        idle = self.launched & (free <= self.launch) & (behind_launch >= 0)
        usual_launch = int(np.percentile(behind_launch[idle], 25)) if idle.any() else CALL_NS
        usual_stream = int(np.percentile(behind_stream[queued], 25)) if queued.any() else 1_000
        self.usual_launch, self.usual_stream = usual_launch, usual_stream
        self.other = np.full(count, -1, np.int64)
        ready = np.maximum(free, self.launch)
        late = self.start - ready > LATENCY_NS
        by_end = np.argsort(self.stop, kind="stable")
        ended = np.searchsorted(self.stop[by_end], self.start, side="right") - 1
        last = np.where(ended >= 0, by_end[np.maximum(ended, 0)], -1)
        bound = late & (last >= 0) & (self.stop[last] > ready) & (self.start[last] < self.start)
        # What ended later than this one began is not what it waited for, whatever the trace says.
        known = (self.recorded >= 0) & (self.stop[self.recorded] <= self.start)
        bound &= ~known
        self.other[bound] = last[bound]
        self.other[known] = self.recorded[known]
        behind_other = self.start - self.stop[self.other]
        held = known & (self.start - ready > LATENCY_NS) | bound
        stream_bound = has & (free + usual_stream >= self.launch + usual_launch)
        self.lag_launch = np.where(stream_bound | held, np.minimum(usual_launch, behind_launch), behind_launch)
        self.lag_stream = np.where(stream_bound & ~held, behind_stream, np.minimum(usual_stream, behind_stream))
        # What has no launch in the trace follows its stream.
        self.lag_stream = np.where(has & ~self.launched, behind_stream, self.lag_stream)
        self.lag_other = np.where(held, behind_other, np.minimum(usual_stream, behind_other))
        # Events that took turns with one of another stream, launched before them: they may have had to.
        turned = (
            (last >= 0) & (self.launch[last] <= self.launch) & (last != self.before) & (self.start[last] < self.start)
        )
        self.opens = ~has & self.launched
        # Where waits are recorded, there are no others.
        self.turn = np.where(turned & ~bound & (not known.any()), last, -1)
        self.lag_turn = np.where(self.turn >= 0, np.minimum(usual_stream, self.start - self.stop[last]), 0)

    def _waits(self, view: HostView) -> Wait:
        host = view.timeline.host
        nothing: Ints = np.empty(0, np.int64)
        if not (host.kind == RUNTIME).any():
            return Wait(nothing, nothing, nothing, np.empty(0, np.bool_), np.empty(0, np.bool_))
        syncs = view.classes.get(h.SYNC, NOTHING)
        copies = view.classes.get(h.TRANSFER, NOTHING)
        long = copies.end - copies.start > BLOCKED_NS
        copies = subtract(Spans(copies.start[long], copies.end[long]), syncs)
        start = np.concatenate([syncs.start, copies.start])
        end = np.concatenate([syncs.end, copies.end])
        kinds = np.arange(start.size) >= syncs.start.size
        inside = (start >= self.begin) & (end <= self.end)
        order = np.flatnonzero(inside)[np.argsort(start[inside], kind="stable")]
        start, end, kinds = start[order], end[order], kinds[order]
        by_end = np.argsort(self.stop, kind="stable")
        at = np.searchsorted(self.stop[by_end], end, side="right") - 1
        event = np.where(at >= 0, by_end[np.maximum(at, 0)], -1)
        bound = (event >= 0) & (self.stop[event] > start)
        asked = bound | ((event >= 0) & ~kinds)
        return Wait(start[asked], end[asked], event[asked], kinds[asked], bound[asked])

    def _host_classes(self, view: HostView) -> dict[str, Spans]:
        """The host's time by what it was at, without waits for the device; disjoint, and all of the stretch."""
        left = Spans(np.array([self.begin], np.int64), np.array([self.end], np.int64))
        waits = self.waits
        left = subtract(left, union(waits.start[waits.bound], waits.end[waits.bound]))
        found = {}
        for name in h.NAMED:
            spans = clip(view.classes.get(name, NOTHING), self.begin, self.end)
            found[name], left = intersect(left, spans), subtract(left, spans)
        found[WORK], left = intersect(left, view.active), subtract(left, view.active)
        found[h.SILENT] = left
        return found

    def host_ns(self, name: str) -> int:
        """Host time of a class in the stretch."""
        return measure(self.classes[name])

    def replay(self, change: Change) -> float:
        """Return how many ns the stretch would take, from the begin of its first step to the end of all its work."""
        found = self._pass(change, None)
        return max(found.device, found.host)

    def period(self, change: Change) -> float:
        """Return how many ns the stretch would take where one like it comes before it, as a step in a loop does."""
        first = self._pass(change, None, settled=True)
        second = self._pass(change, first)
        return max(second.device, second.host) - max(first.device, first.host)

    def _pass(self, change: Change, behind: _Pass | None, *, settled: bool = False) -> _Pass:
        gone = change.gone
        time = HostTime(
            [(spans, change.host if name == WORK else 1.0) for name, spans in self.classes.items() if name not in gone]
        )
        waits = self.waits
        kept = ~np.where(waits.copies, h.TRANSFER in change.waits, h.SYNC in change.waits)
        kept &= waits.bound | change.turns
        start, end, event = waits.start[kept], waits.end[kept], waits.event[kept]
        entered, left = time.at(start), time.at(end)
        # A call that did not wait took its own time of the host.
        least = np.where(waits.bound[kept], np.minimum(end - start, CALL_NS), left - entered)
        lag_wait = np.maximum(end - self.stop[event], 0) * waits.bound[kept]
        lengths = self.length if change.lengths is None else self.length * change.lengths
        turn = self.turn if change.turns else np.full(self.turn.size, -1)
        lag_launch = self.lag_launch
        if settled or behind is not None:
            # What the first events waited for was work of the step before, which is replayed here as well.
            lag_launch = np.where(self.opens, np.minimum(lag_launch, self.usual_launch), lag_launch)
        lags = [self.lag_stream, lag_launch, self.lag_other, self.lag_turn]
        if not change.gaps:
            lags = [np.minimum(one, 0) for one in lags]
        stream, launch, other, turned = lags
        shift, free = 0.0, np.full(self.start.size, -np.inf)
        if behind is not None:
            shift = behind.host
            firsts = np.flatnonzero(self.before < 0)
            last = np.array(behind.done)[self.last_of_stream[firsts]]
            free[firsts] = last + (self.usual_stream if change.gaps else 0)
        columns = (lengths, self.before, stream, launch, self.other, other, turn, turned, free)
        return _replayed(
            order=np.maximum(self.start, self.launch),
            events=[one.tolist() for one in columns],
            host=(time.at(self.launch) + shift).tolist(),
            # Which wait a launch comes behind.
            behind=(np.searchsorted(end, self.launch, side="right") - 1).tolist(),
            waits=(
                (entered + shift).tolist(), (left + shift).tolist(), event.tolist(), lag_wait.tolist(), least.tolist(),
                end,
            ),
            last=float(time.at(np.array([self.end]))[0]) + shift,
        )  # fmt: skip


class _Pass(NamedTuple):
    """When the device was done, when the host was, and when each event was; from the begin of the first stretch."""

    device: float
    host: float
    done: list[float]


def _on_streams(device: Any, stream: Any) -> tuple[Ints, Ints]:
    """For each event the one before it on its stream, or -1, and the last one on that stream."""
    count = stream.size
    before, last = np.full(count, -1, np.int64), np.arange(count)
    order = np.lexsort((np.arange(count), stream, device))
    same = (stream[order][1:] == stream[order][:-1]) & (device[order][1:] == device[order][:-1])
    before[order[1:][same]] = order[:-1][same]
    if count:
        ends = np.flatnonzero(np.append(~same, True))
        last[order] = order[np.repeat(ends, np.diff(np.append(-1, ends)))]
    return before, last


def _replayed(
    *,
    order: Ints,
    events: list[list[Any]],
    host: list[float],
    behind: list[int],
    waits: tuple[list[float], list[float], list[int], list[int], list[int], Ints],
    last: float,
) -> _Pass:
    """Go through events and waits in the order in which they happened."""
    lengths, before, lag_stream, lag_launch, other, lag_other, turn, lag_turn, free = events
    entered, left, waited, lag_wait, least, wait_ends = waits
    count = len(lengths)
    done = [0.0] * count
    returned: list[float] = []
    # Of a wait and an event at one moment the wait comes first: the event cannot be what it waited for.
    sequence = np.argsort(np.concatenate([wait_ends, order]), kind="stable")
    number = wait_ends.size
    latest = 0.0
    for at in sequence.tolist():
        if at < number:
            # Behind the wait before it, the host works on from where that one returned.
            arrived = entered[at] + (returned[-1] - left[at - 1] if returned else 0.0)
            returned.append(max(arrived + least[at], done[waited[at]] + lag_wait[at]))
            continue
        one = at - number
        wait = behind[one]
        start = host[one] + lag_launch[one]
        if wait >= 0:
            start += returned[wait] - left[wait]
        start = max(start, free[one])
        if (prior := before[one]) >= 0 and done[prior] + lag_stream[one] > start:
            start = done[prior] + lag_stream[one]
        if (prior := other[one]) >= 0 and done[prior] + lag_other[one] > start:
            start = done[prior] + lag_other[one]
        if (prior := turn[one]) >= 0 and done[prior] + lag_turn[one] > start:
            start = done[prior] + lag_turn[one]
        ended = start + lengths[one]
        done[one] = ended
        latest = max(latest, ended)
    finished = last + (returned[-1] - left[-1] if returned else 0.0)
    return _Pass(latest, finished, done)

"""TraceFacts: everything that the diagnosis takes from one trace, small enough to send between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from underfed.timeline import steps as s
from underfed.timeline.clues import Clues, clues_of
from underfed.timeline.collectives import CollectiveLog, CollectiveRow, called, collectives
from underfed.timeline.critical import PathFacts, critical_path
from underfed.timeline.device import Parts, Rows, Totals, communicating, devices, parts
from underfed.timeline.idle import Gap, HostView, attribute, host_view, longest
from underfed.timeline.intervals import NOTHING, Flags, Ints, Spans, clip, join, measure, subtract
from underfed.timeline.kernels import (
    CallRow,
    Character,
    CopyRow,
    KernelRow,
    call_table,
    character,
    copy_table,
    kernel_table,
)
from underfed.timeline.launches import Launches, LaunchFacts, launch_facts, launch_flags, match
from underfed.timeline.model import KERNEL, OPERATOR, PYTHON, RUNTIME, Timeline, used
from underfed.timeline.names import LOADER_NEXT
from underfed.timeline.uses import KernelUse, kernel_uses
from underfed.timeline.whatif import Replays, stretch, what_if

#: Key of `host_ns` for time in operators and calls that are no wait.
WORK = "work"
KERNELS_KEPT = 200
GAPS_KEPT = 10
#: Real traces read below 1 % here, from kernels launched ahead of the end of the one before.
OVERLAP_DOUBTFUL = 0.05


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One device. `totals` cover the whole trace or the window asked for; `work` is the device time of what the host
    launched in the window or in the marked steps, wherever on the time axis the device did it.

    `region_ns` is the stretch over which `idle_ns` splits the idle time by cause: the window; else from the first step
    mark to the end of the last step or of its device work; else from the first to the last device event.
    """

    id: int
    name: str | None
    events: int
    kernels: int
    median_kernel_ns: int | None
    totals: Totals
    work: Totals
    region_ns: int
    region_busy_ns: int
    idle_ns: dict[str, int]
    gaps: list[Gap]
    path: PathFacts | None = None


class LoaderSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Waits for the loader's next batch, as torch marks them. `workers` is False for a loader without any."""

    workers: bool
    count: int
    total_ns: int
    longest_ns: int


class StepFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One marked step: host time between its marks, and the device time of what was launched in it."""

    number: int
    wall_ns: int
    work: Totals


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of the host by kind; what they cost is how far the profiler slowed it."""

    operators: int
    runtime: int
    python: int


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace in numbers. Times are ns; `begin_ns` and `end_ns` are Unix ns where the trace has a base.

    `steps` are all steps seen, the first `warmup_steps` of them left out of every other figure; `step_source` says what
    marks them. `host_ns` is the time that the launching threads spent in each class of wait, whether the device was
    idle meanwhile or not, and under `work` in operators and calls that are none. `collectives` and `log` are those of
    the device with most work; `called` counts the collectives that the host called, by backend. `what_if` is the step
    without each cause of waiting, where it was asked for and the trace shows launches. `uses` are the kernels by name,
    shape and module, `tensor_cores` the ns of matrix kernels by whether they use tensor cores and could use them.
    """

    rank: int | None
    world_size: int | None
    device_name: str | None
    events: int
    begin_ns: int | None
    end_ns: int | None
    windowed: bool
    devices: list[DeviceFacts]
    steps: list[StepFacts]
    warmup_steps: int
    step_source: str | None
    host_ns: dict[str, int]
    loader: LoaderSeen | None
    kernels: list[KernelRow]
    kernel_names: int
    copies: list[CopyRow]
    collectives: list[CollectiveRow]
    log: CollectiveLog | None
    called: dict[str, int]
    calls: list[CallRow]
    launches: LaunchFacts
    character: Character
    clues: Clues
    capability: tuple[int, int] | None
    counts: Counts
    stacks: bool
    shapes: bool
    limits: list[str]
    what_if: Replays | None = None
    uses: list[KernelUse] = []
    tensor_cores: dict[str, dict[str, int]] = {}

    @property
    def main(self) -> DeviceFacts | None:
        """The device with most work."""
        return max(self.devices, key=lambda device: device.totals.busy_ns, default=None)


class _Scene(NamedTuple):
    view: HostView
    comms: Flags
    marks: s.Marks
    asked: Flags
    window: tuple[int, int] | None


#: The untraced step in ns, by what was counted.
Untraced = Callable[[TraceFacts], float]


def facts_of(
    timeline: Timeline, window_ns: tuple[int, int] | None = None, untraced: Untraced | None = None
) -> TraceFacts:
    """Sum up a timeline; `window_ns` (begin, end in Unix ns, or on the trace's clock where it has no base) restricts
    it to what happened in a window. With `untraced` the step is replayed without each cause of waiting as well.
    """
    window = None if window_ns is None else (window_ns[0] - timeline.base_ns, window_ns[1] - timeline.base_ns)
    limits = list(timeline.limits)
    launches = match(timeline)
    every = s.marks(timeline)
    first = s.warmup(every)
    marks = every.behind(first)
    steps_at = s.step_of(timeline, launches, marks)
    scene = _Scene(
        view=host_view(timeline, launches, marks.thread),
        comms=communicating(timeline),
        marks=marks,
        asked=_asked(timeline, launches, steps_at, window),
        window=window,
    )
    host_inside = _host_inside(timeline, marks, window)
    by_device = devices(timeline.device)
    both = [_device(scene, number, rows) for number, rows in by_device.items()]
    found = [facts for facts, _ in both]
    table, log = _collectives(scene, both, by_device)
    if not found:
        limits.append("no device events: nothing can be said about a GPU")
    overlap = _overlap_share(timeline)
    if overlap > OVERLAP_DOUBTFUL:
        limits.append(f"device events overlap on their own stream for {overlap:.0%} of their time: times are doubtful")
    rows = np.flatnonzero(scene.asked)
    kernels, names = kernel_table(timeline, rows, KERNELS_KEPT)
    uses, cores = kernel_uses(timeline, launches, rows, KERNELS_KEPT)
    calls = np.flatnonzero(launch_flags(timeline) & host_inside)
    launch = launch_facts(timeline, launches, rows, calls)
    if launch.graphs:
        limits.append(
            "graph launches: one launch stands for many kernels, so gaps inside a graph have no cause of their own"
        )
    kinds = timeline.host.kind[host_inside]
    extent = _extent(timeline)
    counted = TraceFacts(
        rank=timeline.rank,
        world_size=timeline.world_size,
        device_name=next(
            (device.name for device in found if device.name), next(iter(timeline.device_names.values()), None)
        ),
        events=timeline.events,
        begin_ns=extent[0] + timeline.base_ns if extent else None,
        end_ns=extent[1] + timeline.base_ns if extent else None,
        windowed=window is not None,
        devices=found,
        steps=_steps(timeline, scene.comms, every, s.step_of(timeline, launches, every)),
        warmup_steps=first,
        step_source=every.source,
        host_ns=_host_waits(scene),
        loader=_loader(timeline, host_inside),
        kernels=kernels,
        kernel_names=names,
        copies=copy_table(timeline, launches, rows),
        collectives=table,
        log=log,
        called=called(timeline),
        calls=call_table(timeline, host_inside),
        launches=launch,
        character=character(timeline, rows),
        clues=clues_of(scene.view, marks, host_inside, rows),
        capability=timeline.capability,
        counts=Counts(
            operators=int((kinds == OPERATOR).sum()),
            runtime=int((kinds == RUNTIME).sum()),
            python=int((kinds == PYTHON).sum()),
        ),
        stacks=timeline.flags.get("with_stack", False),
        shapes=timeline.flags.get("record_shapes", False),
        limits=limits,
        uses=uses,
        tensor_cores=cores,
    )
    if untraced is None or not found:
        return counted
    part = stretch(scene.view, rows, marks)
    replays = what_if(scene.view, scene.comms, part, untraced(counted)) if part is not None else None
    return msgspec.structs.replace(counted, what_if=replays)


def _asked(timeline: Timeline, launches: Launches, steps_at: Ints, window: tuple[int, int] | None) -> Flags:
    """Flag the device events that the figures are about: launched in the window, or in a marked step, or all."""
    device = timeline.device
    everything: Flags = np.ones(device.start.size, np.bool_)
    if window is None:
        return steps_at >= 0 if (steps_at >= 0).any() else everything
    has = launches.row >= 0
    if not has.any():
        return (device.start >= window[0]) & (device.start < window[1])
    begun = np.where(has, timeline.host.start[launches.row], device.start)
    return (begun >= window[0]) & (begun < window[1])


def _host_inside(timeline: Timeline, marks: s.Marks, window: tuple[int, int] | None) -> Flags:
    host = timeline.host
    if window is None and marks.start.size:
        window = int(marks.start.min()), int(marks.end.max())
    if window is None:
        return np.ones(host.start.size, np.bool_)
    return (host.start >= window[0]) & (host.start < window[1])


def _collectives(
    scene: _Scene, both: list[tuple[DeviceFacts, Spans]], by_device: dict[int, Rows]
) -> tuple[list[CollectiveRow], CollectiveLog | None]:
    """Collectives of the device with most work."""
    if not both:
        return [], None
    facts, compute = max(both, key=lambda one: one[0].totals.busy_ns)
    return collectives(scene.view.timeline, by_device[facts.id], scene.comms, scene.asked, compute)


def _device(scene: _Scene, number: int, rows: Rows) -> tuple[DeviceFacts, Spans]:
    timeline, window = scene.view.timeline, scene.window
    device = timeline.device
    whole: Parts = parts(device, scene.comms, rows)
    mine = rows[scene.asked[rows]]
    work = parts(device, scene.comms, mine)
    begin, end = _region(whole, work, scene.marks, window)
    split = attribute(scene.view, rows, whole.busy, begin, end)
    kernels = mine[device.kind[mine] == KERNEL]
    lengths = np.sort((device.end[kernels] - device.start[kernels]).clip(min=0))
    totals = whole.totals() if window is None else whole.clipped(*window).totals(max(0, window[1] - window[0]))
    facts = DeviceFacts(
        id=number,
        name=timeline.device_names.get(number),
        events=int(mine.size),
        kernels=int(kernels.size),
        median_kernel_ns=int(lengths[lengths.size // 2]) if lengths.size else None,
        totals=totals,
        work=work.totals(),
        region_ns=max(0, end - begin),
        region_busy_ns=max(0, end - begin) - sum(split.by_cause.values()),
        idle_ns=split.by_cause,
        gaps=longest(scene.view, rows, split.free, GAPS_KEPT),
        path=critical_path(scene.view, rows, scene.comms, begin, end),
    )
    return facts, whole.compute


def _region(whole: Parts, work: Parts, marks: s.Marks, window: tuple[int, int] | None) -> tuple[int, int]:
    if window is not None:
        return window
    busy = work.busy if work.busy.start.size else whole.busy
    if busy.start.size == 0:
        return 0, 0
    begin, end = int(busy.start[0]), int(busy.end[-1])
    if marks.start.size:
        begin, end = min(begin, int(marks.start.min())), max(end, int(marks.end.max()))
    return begin, end


def _host_waits(scene: _Scene) -> dict[str, int]:
    """Time of the launching threads by class, in the window, the steps, or the whole trace."""
    marks, window = scene.marks, scene.window
    if window is None and marks.start.size:
        window = int(marks.start.min()), int(marks.end.max())
    if window is None and (extent := _extent(scene.view.timeline)) is not None:
        window = extent
    if window is None:
        return {}
    waits = {name: measure(clip(spans, *window)) for name, spans in scene.view.classes.items()}
    waiting = join(*scene.view.classes.values()) if scene.view.classes else NOTHING
    return {**waits, WORK: measure(clip(subtract(scene.view.active, waiting), *window))}


def _loader(timeline: Timeline, inside: Flags) -> LoaderSeen | None:
    host = timeline.host
    named = np.array([name.startswith(LOADER_NEXT) for name in timeline.names] or [False], np.bool_)
    rows = np.flatnonzero(named[host.name] & inside & (host.kind != PYTHON) & (host.kind != RUNTIME))
    if rows.size == 0:
        return None
    lengths = (host.end[rows] - host.start[rows]).clip(min=0)
    alone = all("_SingleProcess" in timeline.names[name] for name in used(host.name[rows]).tolist())
    return LoaderSeen(
        workers=not alone, count=int(rows.size), total_ns=int(lengths.sum()), longest_ns=int(lengths.max())
    )


def _steps(timeline: Timeline, comms: Flags, marks: s.Marks, steps_at: Ints) -> list[StepFacts]:
    found = []
    for at in range(marks.start.size):
        rows = np.flatnonzero(steps_at == at)
        found.append(
            StepFacts(
                number=int(marks.number[at]),
                wall_ns=int(marks.end[at] - marks.start[at]),
                work=parts(timeline.device, comms, rows).totals(),
            )
        )
    return found


def _overlap_share(timeline: Timeline) -> float:
    """Share of the events' time in which they overlap the one before them on their own stream.

    Kernels that are launched ahead of their predecessor's end overlap it by some us on Hopper and later; more than that
    is a fault of the recording.
    """
    device = timeline.device
    if device.start.size < 2:
        return 0.0
    order = np.lexsort((device.start, device.stream, device.device))
    stream, number = device.stream[order], device.device[order]
    same = (stream[1:] == stream[:-1]) & (number[1:] == number[:-1])
    start, end = device.start[order], device.end[order]
    shared = (np.minimum(end[:-1], end[1:]) - start[1:]).clip(min=0)[same].sum()
    total = (end - start).clip(min=0).sum()
    return float(shared / total) if total else 0.0


def _extent(timeline: Timeline) -> tuple[int, int] | None:
    starts = [table.start.min() for table in (timeline.device, timeline.host) if table.start.size]
    ends = [table.end.max() for table in (timeline.device, timeline.host) if table.end.size]
    return (int(min(starts)), int(max(ends))) if starts else None

"""What one rank's trace says, as the evidence that the split and the rules take."""

from __future__ import annotations

from typing import Any

from underfed.diagnosis import Step, Waits
from underfed.playbook.evidence import Copy, Evidence, FetchFacts, LoaderFacts, Sync
from underfed.timeline.facts import DeviceFacts, TraceFacts
from underfed.trace import written
from underfed.trace.dilation import StepTime, step_time

_MS = 1e-6
#: Causes of idle time that the profiler does not stretch, by the wait of the budget that they belong to.
_FIXED = {
    "data": ("data",),
    "transfer": ("transfer",),
    "sync": ("sync",),
    "stall": ("allocator", "gc", "compile", "stall", "silent"),
}
#: Those that it does: the host at work between launches.
_WORK = ("launch", "host")
#: A call to copy that returns within this many us did not wait for its copy.
_ASYNCHRONOUS_US = 100.0


def steady_steps(facts: TraceFacts) -> int:
    """How many steps the figures rest on, 0 where none are marked."""
    return len(facts.steps) - facts.warmup_steps


def untraced_ns(facts: TraceFacts, step_ms: float | None = None) -> float:
    """Return the untraced step in ns, as it is likely, or `step_ms` where that is known."""
    number = max(1, steady_steps(facts))
    given = step_ms * 1e6 if step_ms is not None else None
    return step_time(facts, number, _traced(facts, facts.main, number), given).likely


def evidence_of(facts: TraceFacts, step_ms: float | None = None) -> tuple[Evidence, StepTime]:
    """Build the evidence; without step marks the whole trace stands for one step."""
    steps = steady_steps(facts)
    number = max(1, steps)
    device = facts.main
    time = step_time(facts, number, _traced(facts, device, number), step_ms * 1e6 if step_ms is not None else None)
    step = _device_budget(device, number, time) if device else _host_budget(facts, number, time)
    spots = written.spots(facts, step.ms or 0.0)
    # What only a checkpoint reads, and waits for, is the checkpoint's.
    reading = not spots or written.reads_in_most_steps(facts)
    evidence = Evidence(
        kind="trace",
        on_gpu=device is not None or facts.device_name is not None or _of_gpus(facts),
        device_name=(device.name if device else None) or facts.device_name,
        steps=steps,
        warmup=facts.warmup_steps,
        step=step,
        regions=written.regions(facts, number, time),
        spots=spots,
        loader=_loader(facts),
        fetches=_fetches(facts),
        epochs=written.epochs(facts, number),
        syncs=_syncs(facts, number) if reading else (),
        copies=tuple(copy for copy in _copies(facts, number) if reading or copy.direction != "d2h"),
        torch=_settings(facts) | written.settings(facts, number),
        reading_ms=facts.clues.reading_ns * _MS / number if reading else None,
        usual_ms=written.usual_ms(facts, number),
        trace=facts,
        limits=tuple(facts.limits),
    )
    return evidence, time


def _traced(facts: TraceFacts, device: DeviceFacts | None, number: int) -> float:
    """The traced step in ns: between the host's marks, or the device's work where it takes longer than they do."""
    walls = [step.wall_ns for step in facts.steps[facts.warmup_steps :]]
    busy = device.work.busy_ns / number if device else 0.0
    if walls:
        return max(sum(walls) / number, busy, 1.0)
    if device is not None and device.region_ns:
        return float(device.region_ns)
    whole = (facts.end_ns or 0) - (facts.begin_ns or 0)
    return max(float(whole), 1.0)


def _device_budget(device: DeviceFacts, number: int, time: StepTime) -> Step:
    work = device.work
    busy, exposed = work.busy_ns / number, work.exposed_comms_ns / number
    step = time.likely
    idle = max(0.0, step - busy)
    fixed = {name: sum(device.idle_ns.get(one, 0) for one in causes) / number for name, causes in _FIXED.items()}
    total = sum(fixed.values())
    scale = min(1.0, idle / total) if total > 0 else 1.0
    waits = {name: value * scale * _MS for name, value in fixed.items()}
    left = max(0.0, idle - total * scale)
    launch = min(left, sum(device.idle_ns.get(name, 0) for name in _WORK) / number)
    return Step(
        ms=step * _MS,
        # Collectives that nothing covers keep the device's streams busy, but what they are is waiting.
        device_ms=(busy - exposed) * _MS,
        device_share=(busy - exposed) / step,
        compute_ms=work.compute_ns / number * _MS,
        copy_ms=work.copy_ns / number * _MS,
        comms_ms=work.comms_ns / number * _MS,
        exposed_comms_ms=exposed * _MS,
        wait_ms=Waits(**waits, launch=launch * _MS, comms=exposed * _MS, other=(left - launch) * _MS),
    )


def _of_gpus(facts: TraceFacts) -> bool:
    """Tell whether the host called collectives that only devices take part in."""
    return any(name in facts.called for name in ("nccl", "rccl", "xccl"))


def _host_budget(facts: TraceFacts, number: int, time: StepTime) -> Step:
    """Budget of a trace without a device: operators that wait for nothing are the CPU's work.

    Where the machine has a device that the trace does not show, nothing says who does the work.
    """
    step = time.likely
    data = min(step, facts.host_ns.get("data", 0) / number)
    if facts.device_name is not None or facts.counts.runtime or _of_gpus(facts):
        return Step(ms=step * _MS, wait_ms=Waits(data=data * _MS))
    stall = min(step - data, sum(facts.host_ns.get(name, 0) for name in ("gc", "compile", "stall")) / number)
    # Where nothing is recorded, nothing says that the CPU computed: it can have slept, or waited for another rank.
    work = min(step - data - stall, facts.host_ns.get("work", 0) / number)
    other = step - data - stall - work
    return Step(
        ms=step * _MS,
        device_ms=work * _MS,
        device_share=work / step,
        compute_ms=work * _MS,
        copy_ms=0.0,
        wait_ms=Waits(
            data=data * _MS, transfer=0.0, sync=0.0, launch=0.0, stall=stall * _MS, comms=0.0, other=other * _MS
        ),
    )


def _loader(facts: TraceFacts) -> LoaderFacts | None:
    """Return the loader's set-up where the trace gives it away: one without workers is marked as such."""
    if facts.loader is None or facts.loader.workers:
        return None
    return LoaderFacts(
        workers=0,
        batch=None,
        pin=False,
        persistent=False,
        prefetch=None,
        context=None,
        length=None,
        dataset=None,
        iterable=False,
        item_at=None,
        collate_at=None,
        made_at=None,
    )


#: A fetch on the training thread both computes and waits, and a trace does not say how much of which: half and half
#: makes the rules claim neither.
_HALF = 0.5


def _fetches(facts: TraceFacts) -> FetchFacts | None:
    loader = facts.loader
    if loader is None or loader.workers or not loader.count:
        return None
    wall = loader.total_ns * _MS / loader.count
    return FetchFacts(
        count=loader.count,
        wall=wall,
        cpu=_HALF * wall,
        process_cpu=_HALF * wall,
        collate=0.0,
        samples=0.0,
        wall_median=wall,
        wall_p95=loader.longest_ns * _MS,
        bytes_read=None,
        by_worker={0: loader.count},
        span_ms=sum(step.wall_ns for step in facts.steps[facts.warmup_steps :]) * _MS,
    )


def _syncs(facts: TraceFacts, number: int) -> tuple[Sync, ...]:
    found = [
        Sync(call=row.name, where="", ms=row.total_ns * _MS / number, calls=row.count / number)
        for row in facts.calls
        if row.kind == "sync"
    ]
    return tuple(sorted(found, key=lambda sync: -sync.ms))


def _copies(facts: TraceFacts, number: int) -> tuple[Copy, ...]:
    found = []
    for row in facts.copies:
        direction = {"HtoD": "h2d", "DtoH": "d2h"}.get(row.direction)
        if direction is None:
            continue
        blocking = row.host_ns / row.count > _ASYNCHRONOUS_US * 1e3
        found.append(
            Copy(
                direction=direction,
                pinned=row.pinned,
                blocking=blocking,
                where="",
                ms=row.host_ns * _MS / number,
                calls=row.count / number,
                bytes=(row.bytes or 0) / number,
            )
        )
    return tuple(found)


def _settings(facts: TraceFacts) -> dict[str, Any]:
    """Settings of torch that a trace gives away."""
    settings: dict[str, Any] = {}
    if facts.capability is not None:
        settings["capability"] = list(facts.capability)
    if facts.called or (facts.world_size or 1) > 1:
        settings["distributed"] = True
    # Products of fp32 matrices without tensor cores on a card that has TF32 are what this setting does.
    if facts.character.tensor_cores_ns.get("no") and (facts.capability or (0,))[0] >= 8:
        settings["matmul_precision"] = "highest"
    return settings

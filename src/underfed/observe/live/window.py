"""The window: counters of every process at its begin and end, stacks and devices in between."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from underfed.observe.gpu.watch import Watch
from underfed.observe.host import cpu, memory, mounts, pressure
from underfed.observe.host.cgroup import Groups, groups
from underfed.observe.host.tree import Process, Tree
from underfed.observe.live import proc
from underfed.observe.live.source import lines_of
from underfed.observe.live.stacks import Sampler, Sampling
from underfed.observe.live.target import Target, devices

#: Samples a second of each thread in a small tree: ten seconds give the 200 that high confidence takes.
RATE = 20
#: Stacks a second to aim at in larger ones, about a sixth of a CPU, and Python threads that a process has, about.
_MOST_STACKS = 500
_THREADS = 3
_LEAST_RATE = 5
_TICK = 0.1
_SLOW_TICKS = 10
_DRIVER_SECONDS = 3.0


@dataclass
class Life:
    """One process over the window: first and last look at it and its threads, states of its main thread."""

    first: Process
    last: Process
    began: float
    seen: float
    words: list[str]
    variables: dict[str, str] | None
    python: bool
    threads_first: dict[int, proc.Thread]
    threads_last: dict[int, proc.Thread]
    states: Counter[str] = field(default_factory=Counter)
    waits: dict[int, Counter[str]] = field(default_factory=dict)
    storage: Counter[str] = field(default_factory=Counter)
    devices: set[int] = field(default_factory=set)
    torch: bool | None = None
    gone: bool = False


@dataclass
class Machine:
    """One look at the machine; None where it does not say."""

    throttle: cpu.Throttle | None
    system: dict[str, pressure.Pressure] | None
    group: dict[str, pressure.Pressure] | None
    memory: memory.Memory
    busy: tuple[int, int] | None


@dataclass
class Seen:
    """All that was seen in one window. `ended` says what ended it: its time, Ctrl-C or the process itself."""

    target: Target
    seconds: float
    ended: str
    lives: list[Life]
    cpus: cpu.Cpus
    before: Machine
    after: Machine
    shm: memory.Space | None
    gpu_box: dict[str, Any] | None
    gpu: list[list[dict[str, Any]]]
    sampling: Sampling
    holding: Sampling | None
    sources: dict[tuple[str, int], str]
    own_cpu_s: float
    begun: float = 0.0
    """On the monotonic clock."""


@dataclass(frozen=True)
class Glance:
    """What one second of a window shows; `t` is on the monotonic clock, `held` are the devices that the run holds."""

    t: float
    processes: list[Process]
    machine: Machine
    usable: float | None
    quota: float | None
    held: frozenset[int]
    gpu: list[dict[str, Any]]
    gpu_box: dict[str, Any] | None


def watch(
    target: Target,
    seconds: float,
    *,
    devices_watch: Watch | None = None,
    stop: threading.Event | None = None,
    glance: Callable[[Glance], None] | None = None,
) -> Seen:
    """Look at a run for a while. Ctrl-C or `stop` ends it early; what was seen until then comes back.

    `devices_watch` stays open for the next window where it is given; `glance` is called with what each second shows.
    """
    root, stop = Path("/"), stop or threading.Event()
    own_devices = devices_watch is None
    devices_watch = devices_watch or Watch()
    tree = Tree(target.pid)
    held = groups(root, target.pid)
    lives: dict[int, Life] = {}
    before, begin, used = _machine(held), time.monotonic(), time.process_time()
    _follow(tree, lives, begin)
    python = sum(life.python for life in lives.values()) or 1
    rate = max(_LEAST_RATE, min(RATE, _MOST_STACKS // (_THREADS * python)))
    # asked once more here, so that no sampler ever looks at a stranger that has the number by now
    sampler = Sampler(target.pid, seconds, rate) if not gone(target) else None
    holding = sampler is not None and sampler.reason is None
    holder = Sampler(target.pid, seconds, max(1, rate // 2), gil=True) if holding else None
    cpus = cpu.effective_cpus(root, target.pid) if sampler is not None else cpu.effective_cpus(root)
    readings: list[list[dict[str, Any]]] = []
    ended, ticks = "window", 0
    try:
        while (passed := time.monotonic() - begin) < seconds:
            if stop.wait(min(_TICK, max(0.0, seconds - passed))):
                ended = "interrupt"
                break
            ticks += 1
            if gone(target):
                ended = "exit"
                break
            _states(lives)
            if ticks % _SLOW_TICKS == 0:
                _follow(tree, lives, time.monotonic())
                _more(lives)
                if reading := devices_watch.take():
                    readings.append(reading)
                if glance is not None:
                    glance(_glance(lives, _machine(held), cpus, reading, devices_watch.box))
    except KeyboardInterrupt:
        ended = "interrupt"
    end = time.monotonic()
    if ended != "exit":
        _follow(tree, lives, end)
        _more(lives)
    after, room = _machine(held), memory.shm(root)
    sampling = sampler.finish() if sampler is not None else Sampling([], rate, 0.0, 0, "the process has ended")
    held_lock = holder.finish() if holder is not None else None
    if not readings and devices_watch.box is None:
        devices_watch.wait(_DRIVER_SECONDS)
    box = devices_watch.box
    if own_devices:
        devices_watch.close()
    return Seen(
        target=target,
        seconds=end - begin,
        ended=ended,
        lives=list(lives.values()),
        cpus=cpus,
        before=before,
        after=after,
        shm=room,
        gpu_box=box,
        gpu=readings,
        sampling=sampling,
        holding=held_lock,
        sources=lines_of(sampling, target.pid),
        own_cpu_s=time.process_time() - used,
        begun=begin,
    )


def gone(target: Target) -> bool:
    """Return whether a process has ended, also where another one has its number by now."""
    now = proc.start_and_state(target.pid)
    return now is None or now[0] != target.start or now[1] in {"Z", "X"}


def _glance(
    lives: dict[int, Life],
    machine: Machine,
    cpus: cpu.Cpus,
    reading: list[dict[str, Any]] | None,
    box: dict[str, Any] | None,
) -> Glance:
    return Glance(
        t=time.monotonic(),
        processes=[life.last for life in lives.values() if not life.gone],
        machine=machine,
        usable=cpus.usable,
        quota=cpus.quota,
        held=frozenset(device for life in lives.values() for device in life.devices),
        gpu=reading or [],
        gpu_box=box,
    )


def _machine(held: Groups | None) -> Machine:
    return Machine(
        throttle=cpu.throttle(held, cpu.quota(held)),
        system=pressure.system_pressure(),
        group=pressure.group_pressure(held),
        memory=memory.memory(held),
        busy=_busy(),
    )


def _busy() -> tuple[int, int] | None:
    """Return CPU time of the whole machine since boot in ticks: at work, and all there was."""
    from underfed.observe.host.files import integer, text

    words = (text("/proc/stat") or "").partition("\n")[0].split()
    ticks = [integer(word) or 0 for word in words[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4], sum(ticks)) if len(ticks) == 8 else None


def _follow(tree: Tree, lives: dict[int, Life], now: float) -> None:
    """Take in who is there now: new processes begin, known ones go on, missing ones are gone."""
    present = _without_us(tree.read())
    for process in present:
        known = lives.get(process.pid)
        threads = {thread.tid: thread for thread in proc.threads(process.pid)}
        if known is not None and known.first.start_ms == process.start_ms:
            known.last, known.seen = process, now
            known.threads_last = {**known.threads_last, **threads}
            continue
        lives[process.pid] = Life(
            first=process,
            last=process,
            began=now,
            seen=now,
            words=proc.command_line(process.pid),
            variables=proc.environment(process.pid),
            python=proc.runs_python(process.pid),
            threads_first=threads,
            threads_last=dict(threads),
        )
    alive = {process.pid for process in present}
    for pid, life in lives.items():
        life.gone = pid not in alive


def _without_us(present: list[Process]) -> list[Process]:
    """Leave out this process and its samplers, where the run was started from the same shell."""
    ours = {os.getpid()}
    for process in sorted(present, key=lambda each: each.start_ms):
        if process.ppid in ours:
            ours.add(process.pid)
    return [process for process in present if process.pid not in ours]


def _states(lives: dict[int, Life]) -> None:
    for pid, life in lives.items():
        if life.python and not life.gone and (now := proc.start_and_state(pid)) is not None:
            life.states[now[1]] += 1


def _more(lives: dict[int, Life]) -> None:
    """What takes more reading: where threads wait in the kernel, on what open files are stored."""
    for pid, life in lives.items():
        if not life.python or life.gone:
            continue
        for tid in list(life.threads_last)[:64]:
            if (where := proc.kernel_wait(pid, tid)) is not None:
                life.waits.setdefault(tid, Counter())[where] += 1
        for file in mounts.open_files(pid) or ():
            if file.mount is not None and not file.path.startswith("/dev/"):
                kind = "network" if file.mount.network else "local" if file.mount.network is False else "unknown"
                life.storage[f"{file.mount.point} ({file.mount.fs}, {kind})"] += 1
        life.devices |= devices(pid)
        life.torch = life.torch or proc.holds_torch(pid)

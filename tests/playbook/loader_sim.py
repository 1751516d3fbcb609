"""An independent oracle: a discrete-event simulation of a DataLoader that feeds a loop.

Batch `i` is asked of worker `i mod W`, as torch does: `W * prefetch` batches are asked for when an epoch begins, and
one more each time that the loop takes one. A worker makes its batches one after the other; they are delivered in order.
The part of a fetch that computes shares `cpus` fairly with the other computing fetches (and, without a GPU, with the
loop); the part that waits does not. Times are ms.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

_EPSILON = 1e-9


@dataclass(frozen=True)
class Setup:
    """One loader and one loop. `fetch` draws (computing, waiting) of a batch; `loop` is a step's time without it."""

    workers: int
    fetch: Callable[[random.Random], tuple[float, float]]
    loop: float
    cpus: float
    prefetch: int = 2
    epoch: int = 100
    epochs: int = 1
    start: float = 0.0
    """Time to start one worker, on the training thread."""
    boot: float = 0.0
    """Time that a new worker needs before its first fetch."""
    persistent: bool = False
    loop_computes: bool = False


@dataclass
class Seen:
    """What the agent would see: all of it measured, nothing of the setup."""

    walls: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    borders: list[bool] = field(default_factory=list)
    fetches: list[tuple[float, float, int]] = field(default_factory=list)
    """Wall time, CPU time, worker."""
    span: float = 0.0


@dataclass
class _Worker:
    queue: deque[int] = field(default_factory=deque)
    item: int | None = None
    begun: float = 0.0
    computing: float = 0.0
    waiting: float = 0.0
    cpu: float = 0.0
    booting: float = 0.0

    def wants_cpu(self) -> bool:
        return self.item is not None and self.computing > _EPSILON


def simulate(setup: Setup, seed: int = 0) -> Seen:
    """Run all epochs and return what was seen."""
    rng = random.Random(seed)
    return _alone(setup, rng) if setup.workers == 0 else _fed(setup, rng)


def _alone(setup: Setup, rng: random.Random) -> Seen:
    seen = Seen()
    for _ in range(setup.epochs):
        for at in range(setup.epoch):
            computing, waiting = setup.fetch(rng)
            seen.fetches.append((computing + waiting, computing, -1))
            seen.starts.append(0.0)
            seen.borders.append(at == 0)
            seen.waits.append(computing + waiting)
            seen.walls.append(computing + waiting + setup.loop)
    seen.span = sum(seen.walls)
    return seen


def _fed(setup: Setup, rng: random.Random) -> Seen:
    seen = Seen()
    clock = 0.0
    workers: list[_Worker] = []
    for epoch in range(setup.epochs):
        began = clock
        if epoch == 0 or not setup.persistent:
            workers = [_Worker(booting=setup.boot) for _ in range(setup.workers)]
            clock += setup.start * setup.workers
        start = clock - began
        done: set[int] = set()
        asked = 0
        while asked < min(setup.workers * setup.prefetch, setup.epoch):
            workers[asked % setup.workers].queue.append(asked)
            asked += 1
        for at in range(setup.epoch):
            before = clock
            while at not in done:
                clock = _advance(setup, rng, workers, clock, None, done, seen, loop_on=False)
            if asked < setup.epoch:
                workers[asked % setup.workers].queue.append(asked)
                asked += 1
            wait = clock - before
            left = setup.loop
            while left > _EPSILON:
                share = _speed(setup, workers, loop_on=True) if setup.loop_computes else 1.0
                now = _advance(setup, rng, workers, clock, left / share, done, seen, loop_on=True)
                left -= (now - clock) * share
                clock = now
            seen.waits.append(wait)
            seen.starts.append(start if at == 0 else 0.0)
            seen.borders.append(at == 0)
            seen.walls.append(clock - (began if at == 0 else before))
    seen.span = sum(seen.walls)
    return seen


def _speed(setup: Setup, workers: list[_Worker], *, loop_on: bool) -> float:
    wanting = sum(worker.wants_cpu() for worker in workers) + (1 if loop_on and setup.loop_computes else 0)
    return min(1.0, setup.cpus / wanting) if wanting else 1.0


def _advance(
    setup: Setup,
    rng: random.Random,
    workers: list[_Worker],
    clock: float,
    most: float | None,
    done: set[int],
    seen: Seen,
    *,
    loop_on: bool,
) -> float:
    """Go to the next event, or `most` ms further where that comes first."""
    for worker in workers:
        if worker.item is None and worker.queue and worker.booting <= _EPSILON:
            worker.item, worker.begun = worker.queue.popleft(), clock
            worker.computing, worker.waiting = setup.fetch(rng)
            worker.cpu = worker.computing
    speed = _speed(setup, workers, loop_on=loop_on)
    ahead = [] if most is None else [most]
    for worker in workers:
        if worker.booting > _EPSILON:
            ahead.append(worker.booting)
        elif worker.wants_cpu():
            ahead.append(worker.computing / speed)
        elif worker.item is not None:
            ahead.append(worker.waiting)
    delta = max(min(ahead), 0.0)
    for number, worker in enumerate(workers):
        if worker.booting > _EPSILON:
            worker.booting -= delta
            continue
        if worker.item is None:
            continue
        if worker.wants_cpu():
            worker.computing -= delta * speed
        else:
            worker.waiting -= delta
        if worker.computing <= _EPSILON and worker.waiting <= _EPSILON:
            seen.fetches.append((clock + delta - worker.begun, worker.cpu, number))
            done.add(worker.item)
            worker.item = None
    return clock + delta

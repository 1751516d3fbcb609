"""The search against a simulated loader whose every setting is known: as good as the whole grid, in fewer runs."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import pytest

from underfed.playbook.evidence import FetchFacts, LoaderFacts
from underfed.playbook.loader_model import Feed
from underfed.tune.model import GROWTH, Model, Room, Setting, alone
from underfed.tune.search import Seen, State, propose

TICK = 0.2


@dataclass(frozen=True)
class Job:
    """A loop and its loader; times in ms, of a batch. `pause` waits, `spin` and (without a device) `loop` compute."""

    pause: float
    spin: float
    loop: float
    cpus: float
    device: bool = False
    worker_mb: int = 50
    room_mb: int = 100_000

    def most(self) -> int:
        """Workers that fit into its memory."""
        return (self.room_mb - 300) // self.worker_mb


@cache
def simulated(job: Job, workers: int) -> float:
    """Step in ms, tick by tick: workers and loop share the CPUs equally, and each worker queues two batches."""
    if workers == 0:
        return job.pause + job.spin + job.loop
    left = [(job.pause, job.spin)] * workers
    queued = [0] * workers
    loop, turn, steps, ticks = 0.0, 0, 0, 0
    begun = 0
    while steps < 240:
        ticks += 1
        computing = [at for at in range(workers) if queued[at] < 2 and left[at][0] <= 0]
        busy = len(computing) + (1 if loop > 0 and not job.device else 0)
        speed = TICK * min(1.0, job.cpus / busy) if busy else TICK
        if loop > 0:
            loop -= TICK if job.device else speed
        for at in range(workers):
            if queued[at] >= 2:
                continue
            pause, spin = left[at]
            left[at] = (pause - TICK, spin) if pause > 0 else (pause, spin - speed)
            if left[at][0] <= 0 and left[at][1] <= 0:
                queued[at], left[at] = queued[at] + 1, (job.pause, job.spin)
        if loop <= 0 and queued[turn]:
            queued[turn] -= 1
            turn = (turn + 1) % workers
            loop, steps = job.loop, steps + 1
            if steps == 100:
                begun = ticks
    return (ticks - begun) * TICK / 140


def seen(job: Job, workers: int) -> Seen:
    """What a run with so many workers would have shown; more than fit into memory are killed."""
    setting = Setting(workers=workers)
    if workers > job.most():
        return Seen(setting=setting, step=None, fits=False)
    step = simulated(job, workers)
    fetch = FetchFacts(
        count=100, wall=job.pause + job.spin, cpu=job.spin, process_cpu=job.spin, collate=0.1, samples=4.0,
        wall_median=job.pause + job.spin, wall_p95=job.pause + job.spin, bytes_read=None, by_worker={},
        span_ms=100 * step,
    )  # fmt: skip
    loader = LoaderFacts(
        workers=workers, batch=4, pin=False, persistent=False, prefetch=2, context=None, length=None, dataset=None,
        iterable=False, item_at=None, collate_at=None, made_at=None,
    )  # fmt: skip
    wait = max(0.0, step - job.loop)
    found = Feed(loader=loader, fetch=fetch, rest=step - wait, border=0.0, wait=wait, cpus=job.cpus, fetches=1.0)
    return Seen(setting=setting, step=step, feed=found)


def searched(job: Job, base: int = 0) -> State:
    """Run the search to its end on a simulated job."""
    first = seen(job, base)
    assert first.feed is not None and first.step is not None
    model = Model(
        rest=first.feed.rest, wall=alone(first.feed), cpu=job.spin, fetches=1.0, cpus=job.cpus, on_gpu=job.device,
        base=Setting(workers=base), base_ms=first.step,
    )  # fmt: skip
    worker = int(job.worker_mb * 2**20 / GROWTH) if base else None
    room = Room(limit=job.room_mb * 2**20, main=300 * 2**20, worker=worker)
    state = State(model=model, room=room, threads=1, seen=[first])
    while (proposal := propose(state)) is not None:
        assert not state.known(proposal.setting), "nothing is run twice"
        assert len(state.seen) < 12, "the search ends"
        assert proposal.setting.workers <= job.most(), "what does not fit is not run"
        state.seen.append(seen(job, proposal.setting.workers))
        state.room = Room(limit=room.limit, main=room.main, worker=int(job.worker_mb * 2**20 / GROWTH))
    return state


def grid(job: Job) -> dict[int, float]:
    return {workers: simulated(job, workers) for workers in range(min(12, job.most()) + 1)}


JOBS = {
    "computes, two CPUs": Job(pause=0, spin=16, loop=5, cpus=2),
    "computes, eight CPUs": Job(pause=0, spin=40, loop=8, cpus=8),
    "computes, a device": Job(pause=0, spin=30, loop=10, cpus=4, device=True),
    "waits": Job(pause=20, spin=1, loop=5, cpus=2),
    "waits and computes": Job(pause=10, spin=8, loop=4, cpus=4),
    "fed": Job(pause=0, spin=0.2, loop=10, cpus=4),
    "half a CPU": Job(pause=0, spin=10, loop=4, cpus=0.5),
    "little memory": Job(pause=20, spin=0.5, loop=4, cpus=4, worker_mb=200, room_mb=1000),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=list(JOBS))
@pytest.mark.parametrize("base", [0, 1, 3])
def test_the_choice_is_as_good_as_the_best_of_the_grid_in_fewer_runs(job: Job, base: int) -> None:
    state, every = searched(job, base), grid(job)
    best = state.best()
    assert best.step is not None and best.step <= 1.06 * min(every.values()), (best.setting, every)
    assert len(state.seen) <= 5 < len(every) or len(state.seen) <= len(every)
    assert len(state.seen) < len(every)


def test_random_jobs_are_seldom_far_from_the_best() -> None:
    rng = random.Random(1)
    far, runs, cells = 0, 0, 0
    for _ in range(25):
        pause, spin = rng.choice([0, 2, 10, 25]), rng.choice([0.2, 2, 10, 25])
        loop, cpus = rng.choice([2, 6, 15]), rng.choice([1, 2, 4, 8])
        job = Job(pause=pause, spin=spin, loop=loop, cpus=cpus, device=rng.random() < 0.5)
        state, every = searched(job), grid(job)
        runs, cells = runs + len(state.seen), cells + len(every)
        far += (state.best().step or 0) > 1.08 * min(every.values())
    assert far <= 3 and runs < cells / 3


def test_a_fed_loop_needs_one_run() -> None:
    assert len(searched(JOBS["fed"]).seen) == 1


def test_what_does_not_fit_is_named_and_not_run() -> None:
    state = searched(JOBS["little memory"])
    assert state.best().setting.workers == 3 and min(state.not_run) == 4
    assert "800 MB" not in state.not_run[4] and "1000 MB" in state.not_run[4]


def test_what_was_run_and_fitted_is_not_named_as_too_large() -> None:
    """The estimate adds to what workers hold: by it, four of them would be beyond the limit that they kept."""
    job = Job(pause=20, spin=0.5, loop=2, cpus=4)
    model = Model(rest=2, wall=20.5, cpu=0.5, fetches=1, cpus=4, on_gpu=False, base=Setting(workers=0), base_ms=22.5)
    room = Room(limit=1000 * 2**20, main=300 * 2**20, worker=160 * 2**20)
    state = State(model=model, room=room, seen=[seen(job, 0), seen(job, 4)])
    assert not room.allows(4)
    propose(state)
    assert min(state.not_run) == 5


def test_before_a_worker_was_seen_one_may_hold_what_its_parent_holds() -> None:
    tight = Room(limit=500 * 2**20, main=300 * 2**20)
    assert not tight.allows(1) and tight.allows(0)
    assert Room(limit=500 * 2**20, main=300 * 2**20, worker=10 * 2**20).allows(10)
    assert Room(limit=None, main=1).allows(99) and Room(limit=1, main=None).allows(99)


def test_killed_numbers_of_workers_are_not_tried_again_and_larger_ones_not_at_all() -> None:
    job = Job(pause=20, spin=0.5, loop=4, cpus=4)
    first = seen(job, 0)
    model = Model(rest=4, wall=20.5, cpu=0.5, fetches=1, cpus=4, on_gpu=False, base=Setting(workers=0), base_ms=24.5)
    state = State(model=model, room=Room(), seen=[first])
    ran = []
    while (proposal := propose(state)) is not None:
        ran.append(proposal.setting.workers)
        fits = ran[-1] < 3
        state.seen.append(seen(job, ran[-1]) if fits else Seen(setting=proposal.setting, step=None, fits=False))
    assert ran[0] > 3 and ran == sorted(ran, reverse=True) and state.best().setting.workers == 2


def test_a_setting_that_changes_the_numbers_is_not_chosen() -> None:
    job = Job(pause=20, spin=0.5, loop=4, cpus=4)
    model = Model(rest=4, wall=20.5, cpu=0.5, fetches=1, cpus=4, on_gpu=False, base=Setting(workers=0), base_ms=24.5)
    state = State(model=model, room=Room(), seen=[seen(job, 0)])
    while (proposal := propose(state)) is not None:
        found = seen(job, proposal.setting.workers)
        state.seen.append(Seen(setting=found.setting, step=found.step, feed=found.feed, true=False))
    assert state.best().setting.workers == 0


def test_the_switches_are_those_that_differ() -> None:
    base = Setting(workers=2)
    assert base.switches(base) == ()
    wanted = Setting(workers=4, prefetch=8, persistent=True, threads=1)
    assert wanted.switches(base) == (
        ("workers", "4"), ("prefetch_factor", "8"), ("persistent_workers", "on"), ("threads", "1")
    )  # fmt: skip
    assert Setting(workers=0, prefetch=8).switches(base) == (("workers", "0"),)

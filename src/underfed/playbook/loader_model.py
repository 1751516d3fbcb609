"""How fast a loader can feed a loop: the arithmetic that the dataloader rules share. Times are ms, one batch each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.playbook.evidence import CpuFacts, Evidence, FetchFacts, LoaderFacts


@dataclass(frozen=True)
class Feed:
    """Supply against demand of one loader."""

    loader: LoaderFacts
    fetch: FetchFacts
    rest: float
    """What the loop needs a step besides waiting for input: the demand."""
    border: float
    """Wait at epoch borders, spread over the steps."""
    wait: float
    """Wait for input inside epochs, a step."""
    cpus: float | None
    fetches: float
    """Batches a step (more than one under gradient accumulation)."""
    free: float | None = None
    """CPUs that are left to the run while others keep theirs busy; at least half of what it may use, since the kernel
    shares fairly."""
    room: float | None = None
    """Workers more that fit into the group's memory, each as large as the largest one; None where that is not known."""

    @property
    def crowded(self) -> bool:
        """Whether the workers find no free CPU: they keep all busy, or queue for one longer than they have it or wait
        for anything else.
        """
        full = (self.cpu_used or 0.0) >= T.cpu_saturated
        queued = self.fetch.queued or 0.0
        elsewhere = self.fetch.wall - self.fetch.cpu - queued
        return self.loader.workers > 0 and (full or queued > max(self.fetch.cpu, elsewhere))

    @property
    def waiting(self) -> bool:
        """Whether a fetch mostly waits (storage, network) rather than computes."""
        return self.fetch.cpu_share < T.waiting_fetch and not self.crowded

    @property
    def computing(self) -> bool:
        """Whether a fetch mostly computes."""
        return self.fetch.cpu_share >= T.computing_fetch or self.crowded

    @property
    def compute(self) -> float:
        """CPU time of one fetch, with the threads that a worker starts. In the training process the other threads are
        the loop's, so there only the fetching thread counts.
        """
        return self.fetch.process_cpu if self.loader.workers else self.fetch.cpu

    @property
    def cpu_used(self) -> float | None:
        """Share of the usable CPUs that the fetches keep busy over the steady part of the run."""
        if not self.cpus or self.fetch.span_ms <= 0:
            return None
        return self.fetch.count * self.compute / self.fetch.span_ms / self.cpus

    @property
    def work(self) -> float:
        """Time of one fetch were it alone on its CPU: computing stretched by other processes is not waiting."""
        return min(self.fetch.wall, self.fetch.cpu) if self.computing else self.fetch.wall

    @property
    def one_feeds(self) -> bool:
        """Whether nearly all batches come from one of several workers, so that more of them cannot help."""
        counts = self.fetch.by_worker.values()
        total = sum(counts)
        return self.loader.workers > 1 and total >= 10 and max(counts) >= T.skewed_worker * total

    @property
    def over_all(self) -> float:
        """CPU time of a step's batches spread over all usable CPUs."""
        return self.fetches * self.compute / max(self.cpus or 1.0, 0.5)

    @property
    def mean_supply(self) -> float:
        """Time a step for which the workers, were they never blocked by a full queue, take to make its batches."""
        return self.fetches * self.fetch.wall / max(self.loader.workers, 1)

    @property
    def bursty(self) -> bool:
        """Whether the workers keep up on average and only the spread of their fetches empties the queue."""
        if self.loader.workers == 0 or self.mean_supply > self.rest:
            return False
        usual = max(self.fetch.wall_median, 1e-9)
        return max(self.fetch.wall_p95, 2 * self.fetch.wall) / usual >= T.bursty_spread

    def saturated(self) -> bool:
        """Whether the loader is limited by CPUs, so that more workers cannot help."""
        if self.waiting or not self.cpus:
            return False
        if self.loader.workers == 0:
            return self.cpus < 1.5
        return self.loader.workers >= math.floor(self.cpus) or self.crowded

    def lacks_workers(self) -> bool:
        """Whether more workers would feed the loop better, and nothing else must be mended before that."""
        now = self.loader.workers
        if self.sensible() <= now or self.one_feeds:
            return False
        if now == 0:
            return not (self.saturated() and self.over_all > self.rest)
        restarts = not self.loader.persistent and self.border > self.wait
        return not self.saturated() and not restarts and self.supply(now) >= 0.9 * self.rest

    def needed(self) -> int:
        """Workers that would feed the loop, were CPUs no limit."""
        return max(1, math.ceil(1.1 * self.fetches * self.work / max(self.rest, 0.01)))

    def sensible(self) -> int:
        """Workers to advise: those needed, but no more than the CPUs can run where fetches compute, nor than fit."""
        most = math.inf if self.room is None else self.loader.workers + math.floor(self.room)
        if self.cpus is None:
            return int(min(self.needed(), 8, most))
        cap = max(1, math.floor(self.cpus))
        return int(min(self.needed(), cap if not self.waiting else max(16, 2 * cap), most))

    def supply(self, workers: int, *, shared: bool = False) -> float:
        """Time a step for which `workers` workers keep the loop waiting in all, were the loop itself free.

        `shared`: on the CPUs that others leave.
        """
        parallel = self.fetches * self.work / max(workers, 1)
        cpus = self.free if shared and self.free is not None else self.cpus
        if cpus is None:
            return parallel
        return max(parallel, self.fetches * self.compute / max(cpus, 0.5))

    def shared_cpus(self, on_gpu: bool) -> float:
        """Floor under a step that comes from loop and loader sharing the same CPUs."""
        if self.cpus is None:
            return 0.0
        loop = self.rest if not on_gpu else 0.0
        return (self.fetches * self.compute + loop) / self.cpus

    def displaced(self, on_gpu: bool) -> float:
        """Step at the worst that sharing costs where the loop computes on the CPUs: an operator's threads wait for the
        one whose CPU a worker has taken, so a fetch's CPU time counts in full unless CPUs are left over.
        """
        if self.cpus is None or on_gpu:
            return 0.0
        return self.rest + self.fetches * self.compute / max(self.cpus - 1.0, 1.0)


def feed(evidence: Evidence) -> Feed | None:
    """Build the model from evidence, or None where loader or fetches were not seen."""
    loader, fetch = evidence.loader, evidence.fetches
    if loader is None or fetch is None or not evidence.step_ms:
        return None
    data = evidence.regions.get("data", 0.0) + evidence.regions.get("start", 0.0)
    epochs = evidence.epochs
    border = (epochs.start_ms + epochs.first_wait_ms) / epochs.steps if epochs and epochs.steps else 0.0
    border = min(border, data)
    rest = max(evidence.step_ms - data, evidence.step.device_ms or 0.0 if evidence.on_gpu else 0.0, 0.01)
    return Feed(
        loader=loader,
        fetch=fetch,
        rest=rest,
        border=border,
        wait=data - border,
        cpus=evidence.cpus.usable if evidence.cpus else None,
        fetches=max(evidence.counts.get("fetches", 1.0), 0.01),
        free=_free(evidence.cpus),
        room=_room(evidence),
    )


def _free(cpus: CpuFacts | None) -> float | None:
    if cpus is None or cpus.usable is None or cpus.others is None or cpus.visible is None:
        return None
    return min(cpus.usable, max(cpus.visible - cpus.others, 0.5 * cpus.usable))


def _room(evidence: Evidence) -> float | None:
    memory = evidence.memory
    if memory is None or not memory.of_group or not memory.worker:
        return None
    return max(0.0, 0.9 * memory.limit - memory.used) / memory.worker


def hot_place(evidence: Evidence) -> str | None:
    """The line of the dataset's code where fetches spend their time, by samples; else where that code begins."""
    seen = evidence.worker_spots or tuple(spot for spot in evidence.spots if spot.kind == "data")
    for spot in seen:
        if spot.samples >= 3 and not _library(spot.where):
            return spot.where
    return evidence.loader.item_at if evidence.loader else None


def _library(place: str) -> bool:
    return any(part in place for part in ("/site-packages/", "/dist-packages/", "/lib/python"))

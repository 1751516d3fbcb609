"""What a setting will cost before it is run: a step's time from fetches, loop and CPUs, and the memory of its workers.

Pure functions of what the runs so far measured; times in ms, sizes in bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from underfed.playbook.evidence import Evidence
from underfed.playbook.loader_model import Feed, feed

#: A worker's pages that are shared at its start become its own as it runs: what it holds at the end of a short run is
#: taken this much larger.
GROWTH = 1.25
#: A fetch that is on a CPU for this share of its time computes, and the rest is what other processes took from it.
COMPUTES = 0.9
#: Workers beyond these are never proposed, however long a fetch waits.
MOST_WORKERS = 32


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run is started with; None leaves it as the script has it."""

    workers: int
    prefetch: int | None = None
    pin: bool | None = None
    persistent: bool | None = None
    threads: int | None = None

    def switches(self, base: Setting) -> tuple[tuple[str, str], ...]:
        """Return the switches that make a run of the script, which has `base`, run with this setting."""
        found: list[tuple[str, str]] = []
        if self.workers != base.workers:
            found.append(("workers", str(self.workers)))
        if self.prefetch is not None and self.workers:
            found.append(("prefetch_factor", str(self.prefetch)))
        if self.persistent and self.workers:
            found.append(("persistent_workers", "on"))
        if self.pin:
            found += [("pin_memory", "on"), ("non_blocking", "on")]
        if self.threads is not None:
            found.append(("threads", str(self.threads)))
        return tuple(found)

    def name(self) -> str:
        """Return it as words, such as `workers=4 prefetch_factor=8`."""
        words = [f"workers={self.workers}"]
        if self.prefetch is not None and self.workers:
            words.append(f"prefetch_factor={self.prefetch}")
        words += [word for word, on in (("persistent", self.persistent and self.workers), ("pinned", self.pin)) if on]
        if self.threads is not None:
            words.append(f"threads={self.threads}")
        return " ".join(words)


@dataclass(frozen=True, kw_only=True)
class Model:
    """The loop and its loader. `rest` is a step without its input; `wall` and `cpu` one fetch alone on its CPU."""

    rest: float
    wall: float
    cpu: float
    fetches: float
    cpus: float | None
    on_gpu: bool
    base: Setting
    base_ms: float

    def floor(self, workers: int) -> float:
        """Return the step that this many workers allow at best: the loop, their supply, and the CPUs under both."""
        if workers == 0:
            return self.rest + self.fetches * self.wall
        supply = self.fetches * self.wall / workers
        if self.cpus is None:
            return max(self.rest, supply)
        shared = (self.fetches * self.cpu + (0.0 if self.on_gpu else self.rest)) / max(self.cpus, 0.5)
        return max(self.rest, supply, shared)

    def predict(self, workers: int, measured: Mapping[int, float]) -> float:
        """Return the step expected with this many workers, corrected by what the nearest measured number took."""
        if workers in measured:
            return measured[workers]
        known = [number for number in measured if (number > 0) == (workers > 0)]
        if not known:
            return self.floor(workers)
        nearest = min(known, key=lambda number: (abs(number - workers), number))
        return self.floor(workers) * max(1.0, measured[nearest] / self.floor(nearest))

    def candidates(self) -> range:
        """Return the numbers of workers that can make sense: up to what feeds the loop, within the CPUs or beyond."""
        needed = math.ceil(1.1 * self.fetches * self.wall / max(self.rest, 0.01)) + 1
        if self.cpus is None:
            return range(min(needed, 8) + 1)
        cap = max(1, math.floor(self.cpus))
        # Workers that wait leave their CPU to others: twice as many as keep all CPUs busy on average bridge chance.
        most = cap + 1 if not self.waits else 2 * math.ceil(cap * self.wall / max(self.cpu, 0.01 * self.wall))
        return range(min(2 * needed if self.waits else needed, most, MOST_WORKERS) + 1)

    @property
    def waits(self) -> bool:
        """Whether a fetch also waits for storage or a network, so that workers beyond the CPUs help."""
        return self.cpu < COMPUTES * self.wall


def model_of(evidence: Evidence, base: Setting, step_ms: float, ranks: int) -> Model | None:
    """Build the model from the first run; None where no loader or no fetch was seen. `ranks` share the CPUs.

    `step_ms` is the usual step, which settings are compared by; the evidence's means, with rare long steps in them, are
    brought to its scale.
    """
    found = feed(evidence)
    if found is None:
        return None
    scale = step_ms / evidence.step_ms
    return Model(
        rest=scale * found.rest,
        wall=scale * alone(found),
        cpu=scale * found.compute,
        fetches=found.fetches,
        cpus=found.cpus / ranks if found.cpus else None,
        on_gpu=evidence.on_gpu,
        base=base,
        base_ms=step_ms,
    )


def alone(found: Feed) -> float:
    """Return the time of one fetch were a CPU always free. What little a computing one waits is its neighbours'."""
    fetch = found.fetch
    if fetch.cpu_share >= COMPUTES or found.crowded:
        return min(fetch.wall, fetch.cpu)
    return max(fetch.cpu, fetch.wall - (fetch.queued or 0.0))


def learned(model: Model, found: Feed) -> Model:
    """Return the model with what a later run showed: the least that a fetch and the rest of the loop took so far."""
    return replace(
        model,
        rest=min(model.rest, found.rest),
        wall=min(model.wall, alone(found)) if found.work > 0 else model.wall,
        cpu=min(model.cpu, found.compute) if found.compute > 0 else model.cpu,
    )


@dataclass(frozen=True, kw_only=True)
class Room:
    """Memory. `limit` is what the run may hold; `main` what the training processes hold, `worker` one worker's own.

    None where not known; `ranks` training processes have so many workers each.
    """

    limit: int | None = None
    main: int | None = None
    worker: int | None = None
    ranks: int = 1

    def predict(self, workers: int) -> int | None:
        """Return the bytes that this many workers need. Before any worker was seen, one may come to hold what its
        parent holds: that is the most that a fork can.
        """
        if self.main is None:
            return None
        each = GROWTH * self.worker if self.worker is not None else self.main / self.ranks
        return round(self.main + self.ranks * workers * each)

    def allows(self, workers: int) -> bool:
        """Return whether this many workers fit; True where it is not known."""
        needed = self.predict(workers)
        return needed is None or self.limit is None or needed <= self.limit

    def most(self, workers: int) -> int:
        """Return the largest number up to `workers` that fits."""
        return next((number for number in range(workers, 0, -1) if self.allows(number)), 0)

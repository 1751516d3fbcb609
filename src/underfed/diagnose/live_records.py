"""The JSON of `attach`: a Diagnosis with one more field, `live`. Shares are 0 to 1 of the window; null is not known."""

from __future__ import annotations

from typing import Literal

from underfed.diagnosis import Diagnosis, Record


class Sampled(Record, frozen=True, kw_only=True):
    """How stacks were taken and what that cost: `cpus` are used by the samplers, the run itself is never stopped."""

    rate: int
    samples: int
    torn: int
    errors: int
    cpus: float
    reason: str | None


class Process(Record, frozen=True, kw_only=True):
    """One process. `cpus` is CPU time by wall time; `queued` the share of the wanted CPU time spent waiting for one."""

    pid: int
    ppid: int
    role: str
    rank: int | None
    name: str
    state: str
    cpus: float
    queued: float | None
    threads: int
    affinity: int | None
    major_faults: int
    read_mb_s: float | None
    asked_mb_s: float | None
    memory: int
    storage: list[str]


class Place(Record, frozen=True, kw_only=True):
    """A line at which the training thread was seen, and what it did there."""

    kind: str
    where: str
    text: str
    share: float
    holding: float | None
    """Share of the window in which it held the interpreter's lock there."""


class Rank(Record, frozen=True, kw_only=True):
    """One rank's training thread: shares by kind, its lines, and the stack that was seen most (innermost first)."""

    pid: int
    rank: int | None
    thread: str | None
    samples: int
    moves: bool
    kinds: dict[str, float]
    places: list[Place]
    stack: list[str]
    kernel: str | None


class Workers(Record, frozen=True, kw_only=True):
    """The loader's workers of one rank, means over them."""

    pid: int
    count: int
    fetch: float
    idle: float
    cpus: float
    queued: float | None
    compute_share: float | None
    where: str | None
    read_mb_s: float | None
    asked_mb_s: float | None
    storage: str | None


class Host(Record, frozen=True, kw_only=True):
    """The machine over the window; `pressure` is the share in which some task waited for a resource."""

    usable_cpus: float | None
    limited_by: str | None
    quota: float | None
    run_cpus: float
    machine_cpus: float | None
    queued: float | None
    runnable_threads: int
    throttled: float | None
    pressure: dict[str, float]
    memory_limit: int | None
    memory_used: int | None
    memory_cache: int | None
    oom_kills: int | None
    shm_free: int | None
    shm_total: int | None


class Gpu(Record, frozen=True, kw_only=True):
    """One device that the run holds, means over the window; % where NVML gives %."""

    id: int
    name: str | None
    utilization: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    power: float | None
    limit: float | None
    clock: float | None
    max_clock: float | None
    memory: float | None
    throttled: list[str]


class Live(Record, frozen=True, kw_only=True):
    """What was seen in the window."""

    pid: int
    asked: int
    note: str | None
    seconds: float
    ended: Literal["window", "interrupt", "exit"]
    headline: str | None
    sampled: Sampled
    processes: list[Process]
    ranks: list[Rank]
    workers: list[Workers]
    host: Host
    gpu: list[Gpu]
    gpu_reason: str | None


class LiveDiagnosis(Diagnosis, frozen=True, kw_only=True):
    """A Diagnosis of a run that goes on; readers of a Diagnosis read it as one."""

    live: Live

"""What the rules look at: facts with their source, in ms a step, whatever kind of recording they came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from underfed.diagnosis import Bound, Step

if TYPE_CHECKING:
    from underfed.timeline.facts import TraceFacts


@dataclass(frozen=True)
class Spot:
    """A place where the training thread spends time. `kind` is the class that the sampler gave it."""

    kind: str
    where: str
    leaf: str
    ms: float
    samples: int


@dataclass(frozen=True)
class LoaderFacts:
    """How the training loader is set up."""

    workers: int
    batch: int | None
    pin: bool
    persistent: bool
    prefetch: int | None
    context: str | None
    length: int | None
    dataset: str | None
    iterable: bool
    item_at: str | None
    collate_at: str | None
    made_at: str | None


@dataclass(frozen=True)
class FetchFacts:
    """Fetches of one batch, in ms: means over the steady part, and the spread of the wall time."""

    count: int
    wall: float
    cpu: float
    process_cpu: float
    collate: float
    samples: float
    wall_median: float
    wall_p95: float
    bytes_read: float | None
    by_worker: dict[int, int]
    span_ms: float
    queued: float | None = None
    """Part of the wall time in which a worker was ready to run and had no CPU; None where the kernel does not say."""

    @property
    def cpu_share(self) -> float:
        """Share of a fetch that computes, were a CPU always free; the rest waits for storage, a network or a lock."""
        wall = max(self.wall - (self.queued or 0.0), self.cpu)
        return min(1.0, self.cpu / wall) if wall > 0 else 1.0


@dataclass(frozen=True)
class EpochFacts:
    """What epochs cost at their border, in ms each: starting workers, and the first batch's wait above the usual."""

    count: int
    steps: float
    start_ms: float
    first_wait_ms: float


@dataclass(frozen=True)
class CpuFacts:
    """How many CPUs the run may use, and what says so."""

    visible: int | None
    usable: float | None
    quota: float | None
    limited_by: str | None
    throttled_share: float | None
    affinity: float | None = None
    """CPUs that the command was allowed to run on when it started."""
    others: float | None = None
    """CPUs that processes beside the run kept busy, on average."""


@dataclass(frozen=True)
class MemoryFacts:
    """Host memory in bytes: the limit that holds, and the most that was in use without cache that can be dropped.

    `of_group` tells a cgroup's limit from all that the machine has. `growth` is bytes a minute over `span_s` of the
    run's later part, None where it does not grow steadily. `kills` counts processes of the group that the kernel killed
    for memory meanwhile. `worker` is the resident memory of the largest loader worker, memory that it shares included.
    """

    limit: float
    used: float
    of_group: bool
    growth: float | None
    span_s: float
    kills: int
    worker: float | None


@dataclass(frozen=True)
class GpuFacts:
    """The busiest GPU by NVML, over the readings in which it was busy. Clocks in MHz, power in W.

    `held` is the share of those readings in which each reason held its clock down. The link is the widest that was
    seen, since an idle card narrows it.
    """

    devices: int
    readings: int
    sm_mhz: float | None
    max_sm_mhz: float | None
    held: dict[str, float]
    power_w: float | None
    limit_w: float | None
    default_limit_w: float | None
    temp_c: float | None
    pcie: tuple[int, int] | None
    pcie_max: tuple[int, int] | None


@dataclass(frozen=True)
class WorkerFacts:
    """Loader workers by /proc: CPUs that each may run on, and threads that each holds, at the median."""

    seen: int
    affinity: float | None
    threads: float | None
    loop_affinity: float | None


@dataclass(frozen=True)
class Sync:
    """A call that waits for the device: ms and calls a step."""

    call: str
    where: str
    ms: float
    calls: float


@dataclass(frozen=True)
class Copy:
    """Copies between host and device of one kind and place: ms, calls and bytes a step."""

    direction: str
    pinned: bool | None
    blocking: bool
    where: str
    ms: float
    calls: float
    bytes: float


@dataclass(frozen=True)
class ExchangeFacts:
    """The gradient exchange inside the backward pass as DistributedDataParallel times it; ms a step unless said.

    `exposed` is what no backward computing covers, a wait for a late rank included. `times` says how often a step
    exchanges, `passes` how many backward passes it has.
    """

    total: float
    exposed: float
    times: float
    passes: float
    readings: int
    bytes: int
    buckets: tuple[int, ...]
    find_unused: bool
    view: bool


@dataclass(frozen=True)
class OperatorFacts:
    """Operators of a run without a GPU, per step: how many, what the counted steps took, and of each name its count and
    own time in ms. Counting adds its own cost to them, so shares and counts tell more than times.
    """

    count: float
    wall_ms: float
    own_ms: dict[str, float]
    counts: dict[str, float]


@dataclass(frozen=True)
class ThreadFacts:
    """Python threads beside the training thread: CPU time of all of them and of the training thread, in CPUs, how many
    there are, and where the code of the busiest one begins.
    """

    others: float
    training: float
    count: int
    where: str | None


@dataclass(frozen=True)
class RankFacts:
    """One rank: its step, and what it does itself rather than waits for the others, in ms."""

    rank: int
    step_ms: float
    own_ms: float
    data_ms: float
    stall_ms: float


@dataclass(frozen=True)
class SkewFacts:
    """What the traces of all ranks say of each other, in ms a step.

    `waiting` is how long a mean rank stands still in collectives until the last one comes, `longest` any rank;
    `moving` is uncovered data transfer of a mean rank; `saved` what is gained if the `late` ranks come when the next
    one does. `device` is a mean rank's own device work. `late` is empty where being late moves between many ranks.
    `why` says what the late ones do longer.
    """

    ranks: int
    late: tuple[int, ...]
    waiting: float
    longest: float
    moving: float
    saved: float
    device: float
    share: float
    where: str
    why: str | None = None
    why_ms: float | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything that is known of a run. None means not known."""

    kind: str
    on_gpu: bool
    device_name: str | None = None
    steps: int = 0
    warmup: int = 0
    step: Step = field(default_factory=Step)
    bound: Bound = "unknown"
    regions: dict[str, float] = field(default_factory=dict)
    spots: tuple[Spot, ...] = ()
    worker_spots: tuple[Spot, ...] = ()
    loader: LoaderFacts | None = None
    fetches: FetchFacts | None = None
    epochs: EpochFacts | None = None
    cpus: CpuFacts | None = None
    syncs: tuple[Sync, ...] = ()
    copies: tuple[Copy, ...] = ()
    torch: dict[str, Any] = field(default_factory=dict)
    recompiles: float | None = None
    counts: dict[str, float] = field(default_factory=dict)
    step_spread: float | None = None
    usual_ms: float | None = None
    """The median step in ms: what a step takes when nothing happens that comes only now and then."""
    reading_ms: float | None = None
    """Host time from the first to the last read of results in a row, with the work between them, in ms a step."""
    trace: TraceFacts | None = None
    exchange: ExchangeFacts | None = None
    operators: OperatorFacts | None = None
    cpu_wait: float | None = None
    """Time for which the training thread was ready and had no CPU, for each unit of time on one."""
    ranks: tuple[RankFacts, ...] = ()
    skew: SkewFacts | None = None
    gpu_util: float | None = None
    memory: MemoryFacts | None = None
    gpu: GpuFacts | None = None
    workers: WorkerFacts | None = None
    threads: ThreadFacts | None = None
    skipped: float | None = None
    """Share of the batches that no optimizer step used, by steps that took a multiple of the usual number."""
    limits: tuple[str, ...] = ()

    @property
    def step_ms(self) -> float:
        """The untraced step in ms, 0 where not known."""
        return self.step.ms or 0.0

    @property
    def wait_ms(self) -> dict[str, float]:
        """Waits of the budget that are known, in ms a step."""
        waits = self.step.wait_ms
        return {name: value for name in waits.__struct_fields__ if (value := getattr(waits, name)) is not None}

    def rest_ms(self, without: str) -> float:
        """The step without one wait, in ms: what binds next when it is gone."""
        return max(self.step_ms - self.wait_ms.get(without, 0.0), 0.001)

    def bound_of_device_code(self) -> Bound:
        """What slow code inside forward, backward or the optimizer holds up: launches on a GPU, else computing."""
        return "host" if self.on_gpu else "compute"

    def work_at(self, where: str) -> float:
        """Time of the training thread's own work at one line, without its waits and copies, which are timed."""
        timed = ("sync", "d2h", "h2d", "gc")
        return sum(spot.ms for spot in self.spots if spot.where == where and spot.kind not in timed)

    def top(self, *kinds: str) -> Spot | None:
        """The place of these classes that holds most time."""
        found = [spot for spot in self.spots if spot.kind in kinds]
        return max(found, key=lambda spot: spot.ms, default=None)

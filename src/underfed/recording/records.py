"""The lines of a recording. Writers are the agent (standard library only) and `underfed run`; this is the reader.

Times are integer nanoseconds: `t`, `end` and `clock` on the machine's monotonic clock, `unix` since 1970.
"""

from __future__ import annotations

from typing import Any

import msgspec

#: Columns of a step row: five of its own, the regions, the counts; in the order of the agent's `clock` module.
STEP_REGIONS = (
    "data", "start", "eval", "h2d", "d2h", "sync", "gc",
    "backward", "optimizer", "comms", "cache", "pre", "mid", "post",
)  # fmt: skip
STEP_COUNTS = ("fetches", "syncs", "copies", "collections")
STEP_COLUMNS = ("index", "kind", "end", "wall", "flags", *STEP_REGIONS, *STEP_COUNTS)

BY_OPTIMIZER, BY_BACKWARD, BY_LOADER = range(3)
TRACED, NEW_EPOCH = 1, 2


class Line(msgspec.Struct, tag_field="k", frozen=True):
    """Base of all lines; `k` says which kind."""


class Process(Line, tag="process", frozen=True, kw_only=True):
    """A process that the agent watches."""

    pid: int
    ppid: int
    role: str = "main"
    worker: int | None = None
    cwd: str | None = None
    clock: int = 0
    unix: int = 0
    python: str | None = None
    torch: str | None = None
    cuda: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    restart: int | None = None


class Loader(Line, tag="loader", frozen=True, kw_only=True):
    """How a DataLoader is set up; `id` is its dataset's."""

    id: int
    t: int = 0
    workers: int = 0
    batch: int | None = None
    pin: bool = False
    persistent: bool = False
    prefetch: int | None = None
    context: str | None = None
    length: int | None = None
    dataset: str | None = None
    iterable: bool = False
    item_at: str | None = None
    collate_at: str | None = None
    sampler: str | None = None
    made_at: str | None = None
    start_ns: int = 0


class Steps(Line, tag="steps", frozen=True, kw_only=True):
    """Step rows, columns as in STEP_COLUMNS."""

    rows: list[list[int]]


class Fetches(Line, tag="fetches", frozen=True, kw_only=True):
    """Fetches of batches: end, wall, thread CPU, process CPU (ns), bytes read, samples, collate (ns)."""

    worker: int | None = None
    workers: int = 0
    rows: list[list[int | None]]


class Stacks(Line, tag="stacks", frozen=True, kw_only=True):
    """Where the training thread stood: section, class, user's place, leaf's place, ns, samples."""

    rows: list[tuple[str | None, str, str, str, int, int]]


class Syncs(Line, tag="syncs", frozen=True, kw_only=True):
    """Calls that waited for the device: call, place, ns, count."""

    rows: list[tuple[str, str, int, int]]


class Copies(Line, tag="copies", frozen=True, kw_only=True):
    """Copies between host and device: direction, pinned, blocking, place, ns, count, bytes."""

    rows: list[tuple[str, bool | None, bool, str, int, int, int]]


class Facts(Line, tag="facts", frozen=True, kw_only=True):
    """Settings of torch and counters, each time they change."""

    t: int
    step: int = 0
    anomaly: bool | None = None
    threads: int | None = None
    matmul_precision: str | None = None
    cudnn_benchmark: bool | None = None
    cudnn_tf32: bool | None = None
    deterministic: bool | None = None
    profiler: bool | None = None
    settrace: bool | None = None
    device: str | None = None
    device_index: int | None = None
    capability: list[int] | None = None
    distributed: bool | None = None
    backend: str | None = None
    anomaly_at: str | None = None
    checkpointing: bool | None = None
    checkpointing_at: str | None = None
    optimizers: list[dict[str, Any]] | None = None
    dynamo: dict[str, Any] | None = None
    memory: dict[str, int] | None = None
    build: dict[str, Any] | None = None
    python_threads: dict[str, Any] | None = None
    denormals: float | None = None


class Ddp(Line, tag="ddp", frozen=True, kw_only=True):
    """One gradient exchange of DistributedDataParallel as torch timed it (ns), and how it is set up (bytes)."""

    step: int
    model: int = 0
    iteration: int = 0
    passes: int = 0
    exchanges: int = 0
    optimizer_steps: int = 0
    compute: int = 0
    exchange: int = 0
    overlap: int = 0
    forward: int = 0
    buckets: list[int] = []
    bytes: int = 0
    cap: int = 0
    find_unused: bool = False
    unused: int = 0
    view: bool = False
    hook: str | None = None
    world: int = 0


class Trace(Line, tag="trace", frozen=True, kw_only=True):
    """A traced window, or why there is none."""

    state: str
    reason: str | None = None
    file: str | None = None
    steps: int = 0
    begin_unix: int = 0
    end_unix: int = 0
    begin: int = 0
    end: int = 0
    start_ns: int = 0
    stop_ns: int = 0
    save_ns: int = 0


class Operators(Line, tag="operators", frozen=True, kw_only=True):
    """Operators of `steps` steps of a run without a GPU, which took `wall` ns: name, count, own time in ns."""

    steps: int
    wall: int
    rows: list[tuple[str, int, int]]


class Fault(Line, tag="fault", frozen=True, kw_only=True):
    """A fault of the agent's own."""

    where: str
    error: str


class End(Line, tag="end", frozen=True, kw_only=True):
    """The process ended in good order."""

    steps: int = 0


AnyLine = Process | Loader | Steps | Fetches | Stacks | Syncs | Copies | Facts | Ddp | Trace | Operators | Fault | End

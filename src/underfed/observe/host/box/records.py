"""The JSON contract of `underfed box --json`. Sizes are bytes, times ms, shares 0 to 1; null means not known."""

from __future__ import annotations

from typing import Any, Literal

from underfed.diagnosis import Record

SCHEMA = "underfed.box/1"


class Cpu(Record, frozen=True, kw_only=True):
    """CPUs. `usable` is the least of visible, affinity and quota; `limited_by` says which, `source` where it is from.

    `threads` is what torch starts in one process by itself, `stolen` the share of CPU time that the hypervisor took
    while this was gathered, and the throttling figures count since the group was made.
    """

    visible: int | None
    affinity: int | None
    quota: float | None
    quota_known: bool
    usable: float | None
    limited_by: str | None
    source: str | None
    cores: int | None
    threads: int | None
    omp_num_threads: int | None
    periods: int | None
    throttled_periods: int | None
    throttled_ms: float | None
    load1: float | None
    stolen: float | None


class Ram(Record, frozen=True, kw_only=True):
    """Memory of the machine and of the group; `cache` is the part of `used` that the kernel can drop."""

    total: int | None
    available: int | None
    limit: int | None
    used: int | None
    cache: int | None
    oom_kills: int | None


class Room(Record, frozen=True, kw_only=True):
    """Room on a file system; inodes are null where it does not count them."""

    total: int
    free: int
    inodes: int | None
    inodes_free: int | None


class Probe(Record, frozen=True, kw_only=True):
    """A short write with fsync and a read of the same bytes, and small files written and read one by one."""

    bytes: int
    write_mb_s: float | None
    read_mb_s: float | None
    read_cached: bool | None
    """True where the bytes surely came from memory, so that the figure says nothing about the storage."""
    small_files: int
    small_write_ms: float | None
    small_read_ms: float | None


class Storage(Record, frozen=True, kw_only=True):
    """What a folder is stored on. `skipped` says why there is no probe, or what stopped it."""

    folder: str
    path: str
    fs: str | None
    source: str | None
    network: bool | None
    read_only: bool | None
    room: Room | None
    probe: Probe | None
    skipped: str | None


class Stall(Record, frozen=True, kw_only=True):
    """Share of the last 10 s in which some task waited for a resource, on the machine and in the own group."""

    cpu: float | None = None
    io: float | None = None
    memory: float | None = None
    group_cpu: float | None = None
    group_io: float | None = None
    group_memory: float | None = None


class Ptrace(Record, frozen=True, kw_only=True):
    """Whose stacks py-spy can read from here: `any` process, the same `user`'s, its own `children`'s, or `none`."""

    reach: Literal["any", "user", "children", "none"] | None
    scope: int | None
    capability: bool | None
    seccomp: bool | None
    blocked: bool | None
    """True where a filter refuses the system call itself."""


class Torch(Record, frozen=True, kw_only=True):
    """The torch that this Python would import; `cuda` is null for a build without it."""

    version: str
    cuda: str | None


class Advice(Record, frozen=True, kw_only=True):
    """One thing to fix: the manual's rule where there is one, what is wrong, and what to do."""

    rule: str | None
    text: str
    fix: str


class Box(Record, frozen=True, kw_only=True):
    """Everything `underfed box` knows. `gpu` has `driver`, `cuda`, `reason` (why there is none) and `devices`."""

    schema: str = SCHEMA
    cpu: Cpu
    memory: Ram
    shm: Room | None
    storage: list[Storage]
    gpu: dict[str, Any]
    pressure: Stall
    ptrace: Ptrace
    torch: Torch | None
    open_files: int | None
    container: str | None
    findings: tuple[Advice, ...] = ()


def to_json(box: Box) -> bytes:
    """Encode as indented JSON with a final newline."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(box), indent=1) + b"\n"

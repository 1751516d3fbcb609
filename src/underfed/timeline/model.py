"""The Timeline: one rank's trace as columns, whatever profiler wrote it, in integer ns on the trace's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from underfed.timeline.intervals import Ints

Codes: TypeAlias = "NDArray[np.int32]"
Bytes: TypeAlias = "NDArray[np.uint8]"

#: What a device event is.
KERNEL, MEMCPY, MEMSET = 0, 1, 2
#: What a row of the host is: a call of the GPU's runtime or driver, an operator, a named range, a Python function, or
#: the profiler's own overhead.
RUNTIME, OPERATOR, ANNOTATION, PYTHON, OVERHEAD = 0, 1, 2, 3, 4
#: A number that the trace did not give.
MISSING = -1


@dataclass(frozen=True)
class DeviceEvents:
    """Kernels, copies and memsets, in the file's order. `name` indexes Timeline.names; `bytes` is -1 if unknown."""

    start: Ints
    end: Ints
    kind: Bytes
    device: Codes
    stream: Ints
    correlation: Ints
    name: Codes
    bytes: Ints


@dataclass(frozen=True)
class HostEvents:
    """Rows of the host, in the order of the file. `thread` indexes Timeline.threads.

    `shape` indexes Timeline.shapes and `sequence` is the number that an operator shares with its backward pass, both -1
    for a row without; the columns are empty where the trace has none of it.
    """

    start: Ints
    end: Ints
    kind: Bytes
    thread: Codes
    name: Codes
    correlation: Ints
    shape: Codes = field(default_factory=lambda: np.empty(0, np.int32))
    sequence: Ints = field(default_factory=lambda: np.empty(0, np.int64))


@dataclass(frozen=True)
class Collective:
    """What the profiler noted about the collective of one kernel; `event` indexes the device events."""

    event: int
    name: str | None
    group: str | None
    size: int | None
    elements: int | None
    dtype: str | None
    sequence: int | None
    out_elements: int | None = None
    ranks: str | None = None


class StreamWait(NamedTuple):
    """A stream that waits for an event of another one: by the calls that said so (`call`) and that recorded it."""

    device: int
    stream: int
    on_stream: int
    call: int
    recorded: int


@dataclass(frozen=True)
class Timeline:
    """One rank's trace. `base_ns` added to a time gives Unix ns, where the trace says so (else 0).

    `shapes` are the sizes and the types of operators' inputs, as JSON lists.
    """

    device: DeviceEvents
    host: HostEvents
    names: tuple[str, ...]
    threads: tuple[tuple[str, str], ...]
    base_ns: int = 0
    rank: int | None = None
    world_size: int | None = None
    device_names: dict[int, str] = field(default_factory=dict)
    capability: tuple[int, int] | None = None
    flags: dict[str, bool] = field(default_factory=dict)
    collectives: tuple[Collective, ...] = ()
    events: int = 0
    limits: tuple[str, ...] = ()
    shapes: tuple[tuple[str, str], ...] = ()
    stream_waits: tuple[StreamWait, ...] = ()


def used(numbers: NDArray[Any]) -> Ints:
    """Return which of small numbers (of names, of threads) occur, in order; far cheaper than sorting them."""
    found: Ints = np.flatnonzero(np.bincount(numbers))
    return found

"""Decodes a chunk of events into one type a category, so that only what is needed of each becomes an object.

Operators are most of a trace, and little of their arguments matters; flows are a third of it, and nothing of them does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import Any, Literal, NamedTuple, Union

import msgspec
import numpy as np
from numpy.typing import NDArray

from underfed.timeline import model as m
from underfed.trace.events import Args, Event, OperatorArgs, WaitArgs

DEVICE = {
    "kernel": m.KERNEL,
    "Kernel": m.KERNEL,
    "gpu_memcpy": m.MEMCPY,
    "Memcpy": m.MEMCPY,
    "gpu_memset": m.MEMSET,
    "Memset": m.MEMSET,
}
HOST = {
    "cuda_runtime": m.RUNTIME,
    "cuda_driver": m.RUNTIME,
    "hip_runtime": m.RUNTIME,
    "hip_driver": m.RUNTIME,
    "xpu_runtime": m.RUNTIME,
    "xpu_driver": m.RUNTIME,
    "Runtime": m.RUNTIME,
    "cpu_op": m.OPERATOR,
    "Operator": m.OPERATOR,
    "user_annotation": m.ANNOTATION,
    "python_function": m.PYTHON,
    "overhead": m.OVERHEAD,
}
#: Categories that Kineto writes and that nothing here looks at. Any other one costs its chunk a second decoding.
_OTHER = (
    "ac2g", "fwdbwd", "async_cpu_to_gpu", "forward_backward", "gpu_user_annotation", "cuda_event", "Trace",
    "cpu_instant_event", "cuda_profiler_range", "collective_comm", "glow_runtime", "mtia_runtime", "mtia_ccp_events",
    "mtia_workloadd", "mtia_insight", "hpu_op", "privateuse1_runtime", "privateuse1_driver", "external_correlation",
)  # fmt: skip

#: Where `enable_cuda_sync_events` recorded which stream waited for which event.
_WAITS = "cuda_sync"
#: Kinds of host rows are this much above those of the model, so that one column tells them from the device's.
HOST_KIND = 16
_WAIT, _NEITHER = 254, 255


class Chunk(NamedTuple):
    """Events of the device and the host, what each is (a device kind, or HOST_KIND and a host kind), how many there
    were in all, and recorded waits of streams for each other.
    """

    rows: Sequence[Any]
    kinds: NDArray[np.uint8]
    total: int
    waits: Sequence[Any] = ()


class Call(msgspec.Struct, gc=False):
    """What of the arguments of a runtime call matters."""

    correlation: int | str | float | None = None


class _Timed(msgspec.Struct, gc=False):
    #: Anything else costs the chunk a second decoding.
    ph: Literal["X"]
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = math.nan
    dur: float = math.nan


def _types() -> dict[Any, int]:
    """One type a category, and the kind of its events."""
    found: dict[Any, int] = {}

    def add(category: str, kind: int, fields: list[Any], bases: tuple[type, ...]) -> None:
        made = msgspec.defstruct("Event", fields, bases=bases, tag_field="cat", tag=category, gc=False)
        found[made] = kind

    for category, kind in DEVICE.items():
        add(category, kind, [("args", Args | None, None)], (_Timed,))
    of_kind: dict[int, list[Any]] = {
        m.RUNTIME: [("args", Call | None, None)],
        m.OPERATOR: [("args", OperatorArgs | None, None)],
    }
    for category, kind in HOST.items():
        add(category, HOST_KIND + kind, of_kind.get(kind, []), (_Timed,))
    add(_WAITS, _WAIT, [("args", WaitArgs | None, None)], ())
    for category in _OTHER:
        add(category, _NEITHER, [], ())
    return found


_KIND_OF = _types()
_BY_CATEGORY = msgspec.json.Decoder(list[Union[tuple(_KIND_OF)]])  # type: ignore[misc]  # noqa: UP007 - made at run time
_ANY = msgspec.json.Decoder(list[Event])
_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def decode(text: bytes) -> Chunk | None:
    """Decode the text between two cuts, or None where it is not a plain list of whole events."""
    text = b"[" + text + b"]"
    try:
        events = _BY_CATEGORY.decode(text)
    except _ERRORS:
        try:
            return chosen(_ANY.decode(text))
        except _ERRORS:
            return None
    kinds = np.fromiter(map(_KIND_OF.__getitem__, map(type, events)), np.uint8, len(events))
    return _kept(events, kinds)


def chosen(events: Sequence[Event]) -> Chunk:
    """Pick the events of the device and the host."""
    return _kept(events, np.array([_kind(event) for event in events], np.uint8))


def _kind(event: Event) -> int:
    if event.ph != "X":
        return _NEITHER
    if event.cat == _WAITS:
        return _WAIT
    return HOST_KIND + HOST[event.cat] if event.cat in HOST else DEVICE.get(event.cat, _NEITHER)


def _kept(events: Sequence[Any], kinds: NDArray[np.uint8]) -> Chunk:
    kept = kinds < _WAIT
    waits = list(compress(events, (kinds == _WAIT).tolist())) if (kinds == _WAIT).any() else ()
    return Chunk(list(compress(events, kept.tolist())), kinds[kept], len(events), waits)

"""Collectives of one rank: a table by kind and group, and a log of each one that can be held against other ranks'."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec
import numpy as np

from underfed.timeline import names as n
from underfed.timeline.device import Rows
from underfed.timeline.intervals import NOTHING, Flags, Ints, Spans, gaps, intersect, measure, overlaps, union
from underfed.timeline.model import MISSING, Collective, Timeline

#: Collectives of one rank that travel to the merge; a step has some hundreds.
LOG_MOST = 10_000
_BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "complexfloat": 8, "complexdouble": 16, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
#: Bytes over a rank's links for each byte of the buffer, as a multiple of (n - 1) / n.
_LINK_FACTOR = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


_CALLED = re.compile(r"(gloo|nccl|rccl|xccl|mpi|ucc):[a-z_]")


class CollectiveRow(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives of one kind in one group. Times are of their kernels, which wait for late ranks as well as move
    data; `exposed_ns` is what no compute kernel covers. `bytes` is the sum of the buffers, None where one is not known;
    `bus_gb_s` is what the links carried at least, in 1e9 bytes a second, since the time holds the waiting.
    """

    name: str
    group: str | None
    size: int | None
    count: int
    total_ns: int
    median_ns: int
    longest_ns: int
    exposed_ns: int
    bytes: int | None
    bus_gb_s: float | None


class CollectiveLog(msgspec.Struct, frozen=True, kw_only=True):
    """Each collective of one rank's main device, in the order of time, as columns of int64 in bytes.

    `keys` are the kinds and groups that `key` points to. Times are Unix ns where the trace has a base. `sequence` is
    the group's own number of the collective, or -1. `inside` is 1 for those in the steps that the figures are about.
    `bare_*` are the stretches of a collective (`bare_of`, its place in the log) that no compute kernel covers.
    """

    keys: list[str]
    key: bytes
    sequence: bytes
    start: bytes
    end: bytes
    inside: bytes
    bare_of: bytes
    bare_start: bytes
    bare_end: bytes
    dropped: int


class _One(NamedTuple):
    kind: str
    group: str | None
    ranks: str | None
    size: int | None
    sequence: int
    bytes: int | None


def collectives(
    timeline: Timeline, rows: Rows, comms: Flags, asked: Flags, compute: Spans
) -> tuple[list[CollectiveRow], CollectiveLog | None]:
    """Sum up the collectives among the events `rows` of one device, `compute` being what may cover them.

    The table is about the events that are `asked` for; the log holds all, so that other ranks count alike.
    """
    mine = rows[comms[rows]]
    if mine.size == 0:
        return [], None
    mine = mine[np.lexsort((timeline.device.end[mine], timeline.device.start[mine]))]
    noted = {one.event: one for one in timeline.collectives}
    ones = [_one(timeline, row, noted.get(row)) for row in mine.tolist()]
    return _table(timeline, mine, ones, asked, compute), _log(timeline, mine, ones, asked, compute)


def _one(timeline: Timeline, row: int, noted: Collective | None) -> _One:
    kernel = timeline.names[timeline.device.name[row]]
    if noted is None:
        return _One(n.collective_kind(kernel), None, None, None, MISSING, None)
    kind = n.collective_kind(noted.name or kernel)
    width = _BYTES.get((noted.dtype or "").lower().removeprefix("c10::"))
    counts = [count for count in (noted.elements, noted.out_elements) if count is not None and count >= 0]
    size = noted.size if noted.size is not None and noted.size > 0 else None
    sequence = noted.sequence if noted.sequence is not None and noted.sequence >= 0 else MISSING
    return _One(kind, noted.group, noted.ranks, size, sequence, max(counts) * width if counts and width else None)


def _table(timeline: Timeline, mine: Rows, ones: list[_One], asked: Flags, compute: Spans) -> list[CollectiveRow]:
    grouped: dict[tuple[str, str | None, int | None], list[int]] = {}
    for at, one in enumerate(ones):
        if asked[mine[at]]:
            grouped.setdefault((one.kind, one.group, one.size), []).append(at)
    found = []
    for (kind, group, size), places in grouped.items():
        events = mine[places]
        start, end = timeline.device.start[events], timeline.device.end[events]
        lengths = np.sort((end - start).clip(min=0))
        spans = union(start, end)
        sizes = [ones[at].bytes for at in places]
        total = None if any(one is None for one in sizes) else sum(one for one in sizes if one is not None)
        found.append(
            CollectiveRow(
                name=kind,
                group=group,
                size=size,
                count=len(places),
                total_ns=int(lengths.sum()),
                median_ns=int(lengths[lengths.size // 2]),
                longest_ns=int(lengths[-1]),
                exposed_ns=measure(spans) - measure(intersect(spans, compute)),
                bytes=total,
                bus_gb_s=bus_rate(kind, size, total, int(lengths.sum())),
            )
        )
    return sorted(found, key=lambda row: (-row.total_ns, row.name, row.group or ""))


def called(timeline: Timeline) -> dict[str, int]:
    """Collectives that the host called, by backend (nccl, gloo, mpi, ...), whether a device shows them or not."""
    found: dict[str, int] = {}
    counts = np.bincount(timeline.host.name, minlength=len(timeline.names))
    for name, count in zip(timeline.names, counts.tolist(), strict=False):
        if count and (match := _CALLED.match(name)):
            found[match[1]] = found.get(match[1], 0) + count
    return found


def bus_rate(kind: str, size: int | None, buffer_bytes: int | None, time_ns: int) -> float | None:
    """Bytes over each rank's links a second, in 1e9; None for what it cannot be worked out for."""
    factor = _LINK_FACTOR.get(kind)
    if factor is None or size is None or size < 2 or buffer_bytes is None or time_ns <= 0:
        return None
    return factor * (size - 1) / size * buffer_bytes / time_ns


def _log(timeline: Timeline, mine: Rows, ones: list[_One], asked: Flags, compute: Spans) -> CollectiveLog:
    dropped = max(0, mine.size - LOG_MOST)
    mine, ones = mine[:LOG_MOST], ones[:LOG_MOST]
    numbers: dict[str, int] = {}
    keys = [numbers.setdefault(_key(one), len(numbers)) for one in ones]
    start, end = timeline.device.start[mine], timeline.device.end[mine]
    end = np.maximum(start, end)
    of, bare = _bare(start, end, compute)
    base = timeline.base_ns
    return CollectiveLog(
        keys=list(numbers),
        key=_packed(np.array(keys, np.int64)),
        sequence=_packed(np.array([one.sequence for one in ones], np.int64)),
        start=_packed(start + base),
        end=_packed(end + base),
        inside=_packed(asked[mine].astype(np.int64)),
        bare_of=_packed(of),
        bare_start=_packed(bare.start + base),
        bare_end=_packed(bare.end + base),
        dropped=dropped,
    )


def _bare(start: Ints, end: Ints, compute: Spans) -> tuple[Ints, Spans]:
    """Stretches of each collective that compute leaves uncovered, and whose they are. Collectives may overlap."""
    if start.size == 0:
        return np.empty(0, np.int64), NOTHING
    free = gaps(compute, int(start.min()), int(end.max()))
    return overlaps(Spans(start, end), free)


def _key(one: _One) -> str:
    return "\0".join((one.kind, one.group or "", one.ranks or ""))


def _packed(values: Ints) -> bytes:
    return values.astype("<i8").tobytes()


def unpacked(column: bytes) -> Ints:
    """Return a column of a log as numbers."""
    return np.frombuffer(column, "<i8").astype(np.int64)

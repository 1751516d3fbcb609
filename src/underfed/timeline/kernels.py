"""Tables by name: kernels, copies, calls that wait for the device; and what the kernels' names give away."""

from __future__ import annotations

import msgspec
import numpy as np

from underfed.timeline import hostcalls as h
from underfed.timeline import names as n
from underfed.timeline.device import Rows
from underfed.timeline.intervals import Flags
from underfed.timeline.launches import Launches
from underfed.timeline.model import KERNEL, MEMCPY, OPERATOR, RUNTIME, Timeline, used


class KernelRow(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels of one name; times are sums over streams, so rows can add up to more than the busy time."""

    name: str
    count: int
    total_ns: int
    median_ns: int
    longest_ns: int


class CopyRow(msgspec.Struct, frozen=True, kw_only=True):
    """All copies of one direction; `pinned` is None where the trace does not say, `bytes` where a size is missing.

    `host_ns` is the time in the calls that started them; a call that is short did not wait for its copy.
    """

    direction: str
    pinned: bool | None
    count: int
    total_ns: int
    bytes: int | None
    host_ns: int


class CallRow(msgspec.Struct, frozen=True, kw_only=True):
    """All runtime calls of one name; `kind` is the class of hostcalls, e.g. sync or allocator."""

    name: str
    kind: str
    count: int
    total_ns: int


class Character(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels' names say, in ns of summed kernel time.

    `tensor_cores_ns` covers matrix kernels only: with, without, and unknown. `attention` lists the SDPA backends seen.
    """

    tensor_cores_ns: dict[str, int]
    layout_ns: int
    layout_count: int
    attention: tuple[str, ...]
    attention_ns: dict[str, int]


def kernel_table(timeline: Timeline, rows: Rows, most: int) -> tuple[list[KernelRow], int]:
    """Return the `most` names with most time, and how many names there are."""
    device = timeline.device
    rows = rows[device.kind[rows] == KERNEL]
    if rows.size == 0:
        return [], 0
    lengths = (device.end[rows] - device.start[rows]).clip(min=0)
    order = np.lexsort((lengths, device.name[rows]))
    names, lengths = device.name[rows][order], lengths[order]
    firsts = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    counts = np.diff(np.append(firsts, names.size))
    totals = np.add.reduceat(lengths, firsts)
    middles = lengths[firsts + counts // 2]
    longest = lengths[firsts + counts - 1]
    texts = [timeline.names[name] for name in names[firsts].tolist()]
    top = sorted(range(firsts.size), key=lambda at: (-int(totals[at]), texts[at]))[:most]
    table = [
        KernelRow(
            name=texts[at],
            count=int(counts[at]),
            total_ns=int(totals[at]),
            median_ns=int(middles[at]),
            longest_ns=int(longest[at]),
        )
        for at in top
    ]
    return table, int(firsts.size)


def copy_table(timeline: Timeline, launches: Launches, rows: Rows) -> list[CopyRow]:
    """Return copies by direction and kind of host memory, most time first."""
    device = timeline.device
    rows = rows[device.kind[rows] == MEMCPY]
    merged: dict[tuple[str, bool | None], list[int]] = {}
    lengths = (device.end - device.start).clip(min=0)
    for name in used(device.name[rows]).tolist():
        mine = rows[device.name[rows] == name]
        key = n.copy_direction(timeline.names[name]), n.copy_pinned(timeline.names[name])
        sizes = device.bytes[mine]
        entry = merged.setdefault(key, [0, 0, 0, 0, 0])
        entry[0] += int(mine.size)
        entry[1] += int(lengths[mine].sum())
        entry[2] += int(sizes.clip(min=0).sum())
        entry[3] += int((sizes < 0).sum())
        calls = used(launches.row[mine][launches.row[mine] >= 0])
        entry[4] += int((timeline.host.end[calls] - timeline.host.start[calls]).clip(min=0).sum())
    found = [
        CopyRow(direction=way, pinned=pin, count=count, total_ns=total, bytes=None if unknown else size, host_ns=host)
        for (way, pin), (count, total, size, unknown, host) in merged.items()
    ]
    return sorted(found, key=lambda row: -row.total_ns)


def call_table(timeline: Timeline, inside: Flags) -> list[CallRow]:
    """Return the runtime calls that wait, allocate or load code, by name, most time first."""
    host = timeline.host
    rows = np.flatnonzero((host.kind == RUNTIME) & inside)
    lengths = (host.end - host.start).clip(min=0)
    counts = np.bincount(host.name[rows], minlength=len(timeline.names))
    found = []
    for name in np.flatnonzero(counts).tolist():
        kind = h.runtime_class(timeline.names[name])
        if kind is not None:
            total = int(lengths[rows[host.name[rows] == name]].sum())
            found.append(CallRow(name=timeline.names[name], kind=kind, count=int(counts[name]), total_ns=total))
    return sorted(found, key=lambda row: -row.total_ns)


def character(timeline: Timeline, rows: Rows) -> Character:
    """Read what the names of kernels, and of operators for attention, give away."""
    device, host = timeline.device, timeline.host
    rows = rows[device.kind[rows] == KERNEL]
    lengths = (device.end[rows] - device.start[rows]).clip(min=0)
    totals = np.zeros(len(timeline.names) + 1, np.int64)
    np.add.at(totals, device.name[rows], lengths)
    counts = np.bincount(device.name[rows], minlength=totals.size)
    cores = {"yes": 0, "no": 0, "unknown": 0}
    attention: dict[str, int] = {}
    layout_ns = layout_count = 0
    for name in used(device.name[rows]).tolist():
        text, total = timeline.names[name], int(totals[name])
        kind = n.tensor_cores(text)
        if kind is not None:
            cores[kind] += total
        if n.is_layout(text):
            layout_ns += total
            layout_count += int(counts[name])
        if (backend := n.attention_of_kernel(text)) is not None:
            attention[backend] = attention.get(backend, 0) + total
    operators = used(host.name[host.kind == OPERATOR]).tolist()
    by_op = {backend for name in operators if (backend := n.attention_of_op(timeline.names[name])) is not None}
    return Character(
        tensor_cores_ns=cores,
        layout_ns=layout_ns,
        layout_count=layout_count,
        # An operator's name is certain; a kernel's name is what is left where no operators were recorded.
        attention=tuple(sorted(by_op or attention)),
        attention_ns=attention,
    )

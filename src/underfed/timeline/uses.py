"""Kernels by name, shape and module: which operator launched each, on inputs of which sizes, in which module.

A kernel belongs to the innermost operator around its launch. Its module is the innermost one around that; behind the
backward pass it is the module of the forward operator with the same number, and without modules the innermost range
that the script named. What the trace does not hold is None, which means unknown.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from underfed.timeline import names as n
from underfed.timeline.device import Rows
from underfed.timeline.eligible import Eligible, eligible
from underfed.timeline.intervals import Ints
from underfed.timeline.launches import Launches
from underfed.timeline.model import ANNOTATION, KERNEL, OPERATOR, PYTHON, Timeline, used
from underfed.timeline.names import LOADER_NEXT, step_number
from underfed.timeline.within import Nested

MODULE = "nn.Module: "
_BACKWARD = "autograd::engine::evaluate_function:"
#: Of a long list of inputs the first ones are shown.
_INPUTS_SHOWN = 8


class KernelUse(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels of one name that one operator launched on inputs of one shape in one module.

    `shape` and `types` are those of the operator's inputs, `-` for one that is no tensor; None is unknown. `cores` says
    whether the kernel uses tensor cores and `eligible` whether its inputs let it, both None for a kernel that
    multiplies no matrices.
    """

    name: str
    operator: str | None
    shape: str | None
    types: str | None
    module: str | None
    count: int
    total_ns: int
    median_ns: int
    longest_ns: int
    cores: Literal["yes", "no", "unknown"] | None
    eligible: Eligible | None


def kernel_uses(
    timeline: Timeline, launches: Launches, rows: Rows, most: int
) -> tuple[list[KernelUse], dict[str, dict[str, int]]]:
    """Return the `most` uses with most time; and for matrix kernels ns by `cores` and `eligible`."""
    device, host = timeline.device, timeline.host
    rows = rows[device.kind[rows] == KERNEL]
    if rows.size == 0:
        return [], {}
    calls = launches.row[rows]
    operator = _operators(timeline, calls)
    shape = np.where(operator >= 0, host.shape[operator], -1) if host.shape.size else np.full(rows.size, -1)
    module = _modules(timeline, calls)
    op_name = np.where(operator >= 0, host.name[operator], -1) if host.name.size else np.full(rows.size, -1)
    keys = np.stack([device.name[rows].astype(np.int64), op_name, shape, module])
    lengths = (device.end[rows] - device.start[rows]).clip(min=0)
    order, firsts = _grouped(keys, lengths)
    counts = np.diff(np.append(firsts, rows.size))
    lengths = lengths[order]
    totals = np.add.reduceat(lengths, firsts)
    table: list[KernelUse] = []
    cores: dict[str, dict[str, int]] = {}
    columns = [column.tolist() for column in (keys[:, order[firsts]].T, counts, totals)]
    middles, longest = lengths[firsts + counts // 2].tolist(), lengths[firsts + counts - 1].tolist()
    kept = set(np.argsort(-totals, kind="stable")[:most].tolist())
    for at, ((name, op, size, inside), count, total) in enumerate(zip(*columns, strict=True)):
        kernel = timeline.names[name]
        used_cores = n.tensor_cores(kernel)
        if used_cores is None and at not in kept:
            continue
        called = timeline.names[op] if op >= 0 else None
        dims, types = timeline.shapes[size] if size >= 0 else (None, None)
        can = None if used_cores is None else eligible(called, dims, types, timeline.capability)
        if used_cores is not None and can is not None:
            of = cores.setdefault(used_cores, {})
            of[can] = of.get(can, 0) + total
        if at in kept:
            table.append(
                KernelUse(
                    name=kernel,
                    operator=called,
                    shape=_sizes(dims),
                    types=_types(types),
                    module=timeline.names[inside].removeprefix(MODULE) if inside >= 0 else None,
                    count=count,
                    total_ns=total,
                    median_ns=middles[at],
                    longest_ns=longest[at],
                    cores=used_cores,
                    eligible=can,
                )
            )
    table.sort(key=lambda one: (-one.total_ns, one.name, one.operator or "", one.shape or "", one.module or ""))
    return table, cores


def _grouped(keys: NDArray[Any], lengths: Ints) -> tuple[Ints, Ints]:
    """Order rows by key and length, and say where each key begins."""
    # Where nothing but names was recorded, there is nothing else to sort by.
    order = np.lexsort((lengths, *(one for one in keys if (one != one[0]).any())))
    opens = np.ones(order.size, np.bool_)
    opens[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    return order, np.flatnonzero(opens)


def _operators(timeline: Timeline, calls: Ints) -> Ints:
    """Row of the innermost operator around each launch, or -1; looked for where shapes are recorded."""
    if not timeline.host.shape.size:
        return np.full(calls.size, -1, np.int64)
    return _around(timeline, np.flatnonzero(timeline.host.kind == OPERATOR), calls)


def _modules(timeline: Timeline, calls: Ints) -> Ints:
    """Name of the module, or else of the range, around each launch, or -1."""
    host = timeline.host
    found = np.full(calls.size, -1, np.int64)
    modules = _named(timeline, PYTHON, [name.startswith(MODULE) for name in timeline.names])
    if modules.size:
        inside = _around(timeline, modules, calls)
        behind = np.flatnonzero(inside < 0)
        inside[behind] = _around(timeline, modules, _forward(timeline, calls[behind]))
        found = np.where(inside >= 0, host.name[inside], -1)
    ranges = _named(timeline, ANNOTATION, [_is_own(name) for name in timeline.names])
    left = np.flatnonzero(found < 0)
    if ranges.size and left.size:
        inside = _around(timeline, ranges, calls[left])
        found[left] = np.where(inside >= 0, host.name[inside], -1)
    return found


def _is_own(name: str) -> bool:
    """Tell whether a range says where in the program something is, and not which step it is."""
    return step_number(name) is None and not name.startswith(LOADER_NEXT)


def _named(timeline: Timeline, kind: int, wanted: list[bool]) -> Rows:
    flags = np.array(wanted or [False], np.bool_)
    return np.flatnonzero(flags[timeline.host.name] & (timeline.host.kind == kind))


def _around(timeline: Timeline, rows: Rows, calls: Ints) -> Ints:
    """Row among `rows` that is the innermost around each of the host's rows `calls`; -1 stays -1."""
    host = timeline.host
    found = np.full(calls.size, -1, np.int64)
    known = np.flatnonzero(calls >= 0)
    # Many kernels are launched by one call of a graph.
    some = used(calls[known]) if known.size else known
    if some.size and rows.size:
        nested = Nested(rows, host.start[rows], host.end[rows], host.thread[rows])
        by_call = np.full(int(some[-1]) + 1, -1, np.int64)
        by_call[some] = nested.around(host.start[some], host.thread[some])
        found[known] = by_call[calls[known]]
    return found


def _forward(timeline: Timeline, calls: Ints) -> Ints:
    """Row of the forward operator behind each launch of a backward pass, or -1: the first one with its number."""
    host = timeline.host
    if not host.sequence.size or calls.size == 0:
        return np.full(calls.size, -1, np.int64)
    nodes = _named(timeline, OPERATOR, [name.startswith(_BACKWARD) for name in timeline.names])
    node = _around(timeline, nodes, calls)
    numbered = np.flatnonzero(host.sequence >= 0)
    numbered = numbered[np.lexsort((host.start[numbered], host.sequence[numbered]))]
    if numbered.size == 0:
        return np.full(calls.size, -1, np.int64)
    wanted = np.where(node >= 0, host.sequence[node], -1)
    at = np.searchsorted(host.sequence[numbered], wanted, side="left")
    first = numbered[np.minimum(at, numbered.size - 1)]
    good = (wanted >= 0) & (host.sequence[first] == wanted) & (host.start[first] < host.start[node])
    return np.where(good, first, -1)


def listed(text: str | None) -> list[Any] | None:
    """Return the JSON list in a text, or None."""
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _sizes(dims: str | None) -> str | None:
    inputs = listed(dims)
    if inputs is None:
        return None
    return ", ".join(_size(one) for one in inputs[:_INPUTS_SHOWN]) + (", ..." if len(inputs) > _INPUTS_SHOWN else "")


def _size(one: Any) -> str:
    if not isinstance(one, list) or not one:
        return "-"
    if isinstance(one[0], list):
        return f"[{', '.join(_size(part) for part in one[:3])}{', ...' if len(one) > 3 else ''}]"
    return "x".join(str(part)[:20] for part in one[:_INPUTS_SHOWN])


def _types(types: str | None) -> str | None:
    inputs = listed(types)
    if not inputs:
        return None
    texts = [str(one)[:40].removeprefix("c10::") or "-" for one in inputs[:_INPUTS_SHOWN]]
    return ", ".join(texts) + (", ..." if len(inputs) > _INPUTS_SHOWN else "")

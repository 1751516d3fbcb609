"""What rows of the host give away about how the program is written: debug modes, recomputing, loops of the optimizer.

All of it needs recorded operators; where none are, every clue is zero and says nothing.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np

from underfed.timeline.device import Rows
from underfed.timeline.idle import HostView
from underfed.timeline.intervals import NOTHING, Flags, Ints, Spans, measure, union
from underfed.timeline.launches import Launches, copies_behind
from underfed.timeline.model import KERNEL, MEMCPY, OPERATOR, RUNTIME, Timeline, used
from underfed.timeline.names import copy_direction
from underfed.timeline.steps import Marks

#: Around every node of a backward pass.
_BACKWARD = "autograd::engine::evaluate_function:"
#: Anomaly detection asks of each gradient whether it holds a NaN, and reads the answer.
_NAN_CHECK = frozenset({"aten::isnan", "aten::_is_any_true", "aten::is_nonzero", "aten::item"})
#: Composite operators of a forward pass: formulas of gradients call the parts below them, never these.
_FORWARD = frozenset(
    {
        "aten::linear", "aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::layer_norm", "aten::batch_norm",
        "aten::group_norm", "aten::rms_norm", "aten::scaled_dot_product_attention", "aten::embedding", "aten::gelu",
        "aten::silu", "aten::dropout", "aten::multi_head_attention_forward",
    }
)  # fmt: skip
_DATA_PARALLEL = frozenset({"DataParallel.forward"})
_OPTIMIZER = "Optimizer.step#"
_LISTS = re.compile(r"multi_tensor_apply|FusedAdam|FusedSgd|fused_adam|fused_sgd", re.IGNORECASE)
#: Reads of results with at most this many launches in between belong to one piece of work on the host.
_BETWEEN = 4
#: Silence before a long wait for a loader from which its workers were started and not merely asked for more.
STARTED_NS = 20_000_000


class Clues(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and ns over the steady steps (or the window). Host times are as traced.

    `backward_nodes` are nodes of the backward pass, `nan_checks` how many of them were asked for NaNs, which took
    `nan_check_ns`. `recomputed_ns` is the device's time for forward operators that ran inside the backward pass.
    `optimizer_ns` is host time in Optimizer.step, `optimizer_kernels` what it launched, of which `optimizer_lists`
    update many tensors each, and `optimizer` the class's name. `reading_ns` is host time from the first to the last
    read of results in a row, with what was done between them. `worker_starts` are starts of a loader's workers,
    `worker_silence_ns` what they took and `worker_start_ns` that with the wait for the first batch. `step_reads` are
    copies to the host by step. `data_parallel`: torch.nn.DataParallel ran.
    """

    backward_nodes: int = 0
    nan_checks: int = 0
    nan_check_ns: int = 0
    recomputed_ns: int = 0
    optimizer_ns: int = 0
    optimizer_kernels: int = 0
    optimizer_lists: int = 0
    optimizer: str | None = None
    reading_ns: int = 0
    worker_starts: int = 0
    worker_silence_ns: int = 0
    worker_start_ns: int = 0
    step_reads: tuple[int, ...] = ()
    data_parallel: bool = False


def clues_of(view: HostView, marks: Marks, inside: Flags, asked: Rows) -> Clues:
    """Collect the clues: `inside` flags the host's rows that count, `asked` are the device events that do."""
    timeline, launches = view.timeline, view.launches
    host, starts = timeline.host, view.started
    operators = inside & (host.kind == OPERATOR)
    named = _Named(timeline)
    nodes = np.flatnonzero(operators & named.beginning(_BACKWARD))
    backward = _ByThread(timeline, nodes)
    checks = backward.holding(np.flatnonzero(operators & named.among(_NAN_CHECK)))
    isnan = np.flatnonzero(named.among(frozenset({"aten::isnan"}))[checks])
    again = backward.holding(np.flatnonzero(operators & named.among(_FORWARD)))
    optimizer = np.flatnonzero(inside & (host.kind != RUNTIME) & named.beginning(_OPTIMIZER))
    inner = _launched_in(timeline, launches, asked, _ByThread(timeline, optimizer))
    lists = np.array([bool(_LISTS.search(name)) for name in timeline.names] or [False], np.bool_)
    silences = (starts[0].end - starts[0].start)[starts[0].end - starts[0].start >= STARTED_NS]
    return Clues(
        backward_nodes=int(nodes.size),
        nan_checks=int(isnan.size),
        nan_check_ns=measure(_spans(timeline, checks)),
        recomputed_ns=_recomputed(timeline, launches, asked, nodes, again),
        optimizer_ns=measure(_spans(timeline, optimizer)),
        optimizer_kernels=int(inner.size),
        optimizer_lists=int(lists[timeline.device.name[inner]].sum()),
        optimizer=_optimizer(timeline, optimizer),
        reading_ns=_reading(timeline, launches, inside),
        worker_starts=int(silences.size),
        worker_silence_ns=int(silences.sum()),
        worker_start_ns=_both(starts),
        step_reads=_reads_by_step(timeline, launches, marks, asked),
        data_parallel=bool((inside & named.among(_DATA_PARALLEL)).any()),
    )


def _optimizer(timeline: Timeline, rows: Rows) -> str | None:
    """Name of the optimizer's class, from the first of its ranges: `Optimizer.step#AdamW.step`."""
    if rows.size == 0:
        return None
    return timeline.names[int(timeline.host.name[rows[0]])].removeprefix(_OPTIMIZER).removesuffix(".step")


class _Named:
    """Flags of host rows by what their names are."""

    def __init__(self, timeline: Timeline) -> None:
        self._names = timeline.names
        self._row = timeline.host.name

    def among(self, names: frozenset[str]) -> Flags:
        return self._flags([name in names for name in self._names])

    def beginning(self, text: str) -> Flags:
        return self._flags([name.startswith(text) for name in self._names])

    def _flags(self, found: list[bool]) -> Flags:
        flags: Flags = np.array(found or [False], np.bool_)[self._row]
        return flags


class _ByThread:
    """Spans of some host rows, thread by thread."""

    def __init__(self, timeline: Timeline, rows: Rows) -> None:
        host = timeline.host
        self._host = host
        self.spans: dict[int, Spans] = {}
        for thread in used(host.thread[rows].astype(np.int64)).tolist() if rows.size else []:
            mine = rows[host.thread[rows] == thread]
            self.spans[thread] = union(host.start[mine], host.end[mine])

    def holding(self, rows: Rows) -> Rows:
        """Return those of the rows that begin inside a span of their own thread."""
        kept = [np.empty(0, np.int64)]
        for thread, spans in self.spans.items():
            mine = rows[self._host.thread[rows] == thread]
            at = np.searchsorted(spans.start, self._host.start[mine], side="right") - 1
            kept.append(mine[(at >= 0) & (self._host.start[mine] < spans.end[at])])
        return np.concatenate(kept)


def _spans(timeline: Timeline, rows: Rows) -> Spans:
    return union(timeline.host.start[rows], timeline.host.end[rows]) if rows.size else NOTHING


def _launched_in(timeline: Timeline, launches: Launches, asked: Rows, places: _ByThread) -> Rows:
    """Return the kernels whose launch lies in spans of its own thread."""
    device = timeline.device
    kernels = asked[(device.kind[asked] == KERNEL) & (launches.row[asked] >= 0)]
    if kernels.size == 0 or not places.spans:
        return np.empty(0, np.int64)
    calls = launches.row[kernels]
    order = np.argsort(calls, kind="stable")
    held = places.holding(used(calls))
    found: Rows = kernels[order][np.isin(calls[order], held)]
    return found


def _recomputed(timeline: Timeline, launches: Launches, asked: Rows, nodes: Rows, again: Rows) -> int:
    """Device time of what was launched from the first to the end of the last forward operator inside each node."""
    if again.size == 0:
        return 0
    host = timeline.host
    begins, ends, threads = [], [], []
    for thread in used(host.thread[again].astype(np.int64)).tolist():
        mine = again[host.thread[again] == thread]
        outer = nodes[host.thread[nodes] == thread]
        outer = outer[np.argsort(host.start[outer], kind="stable")]
        at = np.searchsorted(host.start[outer], host.start[mine], side="right") - 1
        for node in used(at).tolist():
            ops = mine[at == node]
            begins.append(int(host.start[ops].min()))
            ends.append(int(host.end[ops].max()))
            threads.append(thread)
    total = 0
    device = timeline.device
    kernels = asked[(device.kind[asked] == KERNEL) & (launches.row[asked] >= 0)]
    calls = launches.row[kernels]
    for thread in set(threads):
        spans = union(
            np.array([b for b, t in zip(begins, threads, strict=True) if t == thread], np.int64),
            np.array([e for e, t in zip(ends, threads, strict=True) if t == thread], np.int64),
        )
        at = np.searchsorted(spans.start, host.start[calls], side="right") - 1
        held = (at >= 0) & (host.thread[calls] == thread) & (host.start[calls] < spans.end[at])
        mine = kernels[held]
        total += measure(union(device.start[mine], device.end[mine]))
    return total


def _reading(timeline: Timeline, launches: Launches, inside: Flags) -> int:
    """Host time of reads of results in a row, from the begin of the first to the end of the last."""
    host = timeline.host
    reads = used(copies_behind(timeline, launches)["DtoH"])
    reads = reads[inside[reads]]
    if reads.size < 2:
        return 0
    launching = used(launches.row[launches.row >= 0])
    total = 0
    for thread in used(host.thread[reads].astype(np.int64)).tolist():
        mine = reads[host.thread[reads] == thread]
        mine = mine[np.argsort(host.start[mine], kind="stable")]
        calls = np.sort(host.start[launching[host.thread[launching] == thread]])
        before = np.searchsorted(calls, host.start[mine], side="left")
        breaks = np.flatnonzero(before[1:] - before[:-1] > _BETWEEN)
        first = np.append(0, breaks + 1)
        last = np.append(breaks, mine.size - 1)
        alone = first == last
        total += int((host.end[mine[last]] - host.start[mine[first]])[~alone].sum())
    return total


def _reads_by_step(timeline: Timeline, launches: Launches, marks: Marks, asked: Rows) -> tuple[int, ...]:
    """Copies to the host, by the step that asked for them."""
    device, host = timeline.device, timeline.host
    if marks.start.size == 0:
        return ()
    down = np.array([copy_direction(name) == "DtoH" for name in timeline.names] or [False], np.bool_)
    rows = asked[(device.kind[asked] == MEMCPY) & down[device.name[asked]] & (launches.row[asked] >= 0)]
    at = np.searchsorted(marks.start, host.start[launches.row[rows]], side="right") - 1
    counts: Ints = np.bincount(at[at >= 0], minlength=marks.start.size)
    return tuple(counts.tolist())


def _both(starts: tuple[Spans, Spans]) -> int:
    """Time of the starts that are long enough to be some, with the waits right behind them."""
    silent, waits = starts
    total = 0
    for begin, end in zip(silent.start.tolist(), silent.end.tolist(), strict=True):
        if end - begin >= STARTED_NS:
            at = int(np.searchsorted(waits.start, end, side="left"))
            total += (int(waits.end[at]) if at < waits.start.size and waits.start[at] == end else end) - begin
    return total

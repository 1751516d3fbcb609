"""The timeline of one typical and one bad step, lane by lane, with the gaps coloured by cause."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from underfed.pictures import specs
from underfed.pictures.kernel_names import short
from underfed.pictures.material import Material
from underfed.pictures.palette import LABELS, NAMES
from underfed.pictures.scene import CAUSE_CLASS, CAUSE_WORDS, Scene, scene_of
from underfed.pictures.shapes import Chart, Section, Table, number
from underfed.report.text import clean
from underfed.report.words import has_gpu
from underfed.timeline import hostcalls as h
from underfed.timeline.device import Rows
from underfed.timeline.intervals import NOTHING, Ints, Spans, clip, join, measure, subtract, union
from underfed.timeline.model import KERNEL

_EMPTY = Section(id="timeline", title="Inside a step")

#: Bars of a lane; what lies closer together than the step has room for is drawn as one.
_BARS = 400
_STREAMS = 4
_WORKERS = 8
_GAPS = 12
#: A step this many times as long as the typical one is worth a picture of its own.
_BAD = 1.15
_MS = 1e-6

Row = dict[str, Any]


class Part(NamedTuple):
    """A stretch of time in ns."""

    begin: int
    end: int

    @property
    def length(self) -> int:
        """How long it is."""
        return self.end - self.begin


def section(material: Material) -> Section:
    """Return the section with the timelines."""
    scene = scene_of(material)
    if scene is None:
        on_cpu = not has_gpu(material.diagnosis.subject)
        why = "The CPU is the device here, and no trace of it was taken." if on_cpu else "No device work was traced."
        return replace(_EMPTY, missing=f"{why} So there is no timeline of a step.")
    if not scene.steps:
        return replace(_EMPTY, missing="No steps are marked in the trace.")
    typical, bad = _chosen(scene.steps)
    charts = [_chart(scene, typical, "typical", "A typical step")]
    notes = ["The profiler was running here: the host is slower than in an untraced step, the device is not."]
    if bad is not None:
        charts.append(_chart(scene, bad, "bad", "The longest step that was traced"))
    else:
        notes.append("No traced step is much longer than this one.")
    return replace(_EMPTY, charts=charts, notes=notes)


def _chosen(steps: list[tuple[int, int, int]]) -> tuple[tuple[int, int, int], tuple[int, int, int] | None]:
    walls = [end - begin for _, begin, end in steps]
    middle = median(walls)
    typical = min(steps, key=lambda step: abs(step[2] - step[1] - middle))
    bad = max(steps, key=lambda step: step[2] - step[1])
    return typical, bad if bad[2] - bad[1] > _BAD * (typical[2] - typical[1]) else None


def _chart(scene: Scene, step: tuple[int, int, int], key: str, title: str) -> Chart:
    at, begin, end = step
    part, span = Part(begin, end), end - begin
    gaps = scene.gaps(begin, end)
    rows = [*_host(scene, part), *_workers(scene, part), *_device(scene, part)]
    rows += _gap_rows(scene, gaps, part)
    order = list(dict.fromkeys(row["lane"] for row in rows))
    used = tuple(name for name in NAMES if any(row["class"] == name for row in rows))
    idle = {cause: measure(spans) for cause, spans in gaps.items()}
    busy = span - sum(idle.values())
    says = f"Step {at}, {number(span * _MS)} ms: the device is at work for {number(busy * _MS)} ms of it"
    if idle:
        worst = max(idle, key=lambda cause: idle[cause])
        says += f"; most of its idle time, {number(idle[worst] * _MS)} ms: {scene.words(worst)}"
        where = scene.where(worst)
        says += f" ({clean(where, ascii_only=False)})" if where else ""
    return Chart(
        id=f"lanes-{key}",
        title=title,
        says=says + ".",
        spec=specs.lanes(rows, order, used, span * _MS, title) if rows else None,
        legend=tuple((name, _label(name, order)) for name in used),
        table=_table(scene, gaps, begin),
        zoom=True,
    )


def _label(name: str, order: list[str]) -> str:
    """A worker at a batch has the colour of the wait that it is the other side of."""
    workers = name == "data" and any(lane.startswith("loader worker") for lane in order)
    return "waiting for data; in a worker's lane: a batch in the making" if workers else LABELS[name]


def _host(scene: Scene, part: Part) -> list[Row]:
    """The threads that launch: waits by class, launching, and other work."""
    rows: list[Row] = []
    left = union(np.array([part.begin], np.int64), np.array([part.end], np.int64))
    found: dict[str, Spans] = {name: scene.view.classes[name] for name in h.NAMED if name in scene.view.classes}
    found |= {h.LAUNCH: scene.view.launching, h.HOST: scene.view.active}
    found[h.DATA] = join(found.get(h.DATA, NOTHING), scene.loader_waits)
    for cause, spans in found.items():
        inside = clip(spans, part.begin, part.end)
        shown = subtract(inside, subtract(inside, left))
        left = subtract(left, inside)
        rows += _spans("host thread", shown, part, CAUSE_CLASS[cause], what=CAUSE_WORDS[cause])
    return rows


def _workers(scene: Scene, part: Part) -> list[Row]:
    rows: list[Row] = []
    for worker, fetches in list(scene.fetches(part.begin, part.end).items())[:_WORKERS]:
        for start, stop, cpu in fetches[:_BARS]:
            what = f"a batch; {number(cpu * _MS)} of {number((stop - start) * _MS)} ms on a CPU"
            low, high = max(start, part.begin), min(stop, part.end)
            rows.append(_row(f"loader worker {worker}", low - part.begin, high - part.begin, "data", what=what))
    return rows


def _device(scene: Scene, part: Part) -> list[Row]:
    device = scene.timeline.device
    mine = scene.rows[(device.end[scene.rows] > part.begin) & (device.start[scene.rows] < part.end)]
    kernel, talks = device.kind[mine] == KERNEL, scene.comms[mine]
    rows = _events(scene, "copies", mine[~kernel], part, "transfer")
    compute = mine[kernel & ~talks]
    streams, counts = np.unique(device.stream[compute], return_counts=True)
    order = streams[np.argsort(-counts, kind="stable")].tolist()
    for stream in order[:_STREAMS]:
        rows += _events(scene, f"stream {stream}", compute[device.stream[compute] == stream], part, "device")
    rest = compute[~np.isin(device.stream[compute], order[:_STREAMS])]
    rows += _events(scene, f"{len(order) - _STREAMS} other streams", rest, part, "device")
    return rows + _events(scene, "collectives", mine[talks], part, "comms")


def _events(scene: Scene, lane: str, rows: Rows, part: Part, kind: str) -> list[Row]:
    """Bars of device events; where there are more than can be told apart, bars of equal length, as full as they are."""
    device = scene.timeline.device
    rows = rows[np.argsort(device.start[rows], kind="stable")]
    start, stop = device.start[rows].clip(*part), device.end[rows].clip(*part)
    names = [scene.timeline.names[name] for name in device.name[rows].tolist()]
    if rows.size > _BARS:
        return _binned(lane, start, stop, names, part=part, kind=kind)
    return [
        _row(lane, a - part.begin, b - part.begin, kind, what=short(name))
        for a, b, name in zip(start.tolist(), stop.tolist(), names, strict=True)
    ]


def _binned(lane: str, start: Ints, stop: Ints, names: list[str], *, part: Part, kind: str) -> list[Row]:
    busy = union(start, stop)
    edges = np.linspace(part.begin, part.end, _BARS + 1).astype(np.int64)
    # Busy time up to each edge, from the corners of the curve that it is over time.
    corners = np.stack([busy.start, busy.end], axis=1).ravel()
    heights = np.repeat(np.concatenate([[0], np.cumsum(busy.end - busy.start)]), 2)[1:-1]
    filled = np.diff(np.interp(edges, corners, heights))
    first = np.searchsorted(start, edges[:-1], side="left")
    behind = np.searchsorted(start, edges[1:], side="left")
    found = []
    for at in np.flatnonzero(filled > 0).tolist():
        low, high = int(edges[at]), int(edges[at + 1])
        begun = range(int(first[at]), int(behind[at]))
        what = f"busy {number(filled[at] * _MS)} of {number((high - low) * _MS)} ms"
        if begun:
            longest = max(begun, key=lambda one: int(stop[one] - start[one]))
            what += f"; {len(begun)} events begin, longest: {short(names[longest])}"
        share = float(filled[at] / (high - low))
        found.append({**_row(lane, low - part.begin, high - part.begin, kind, what=what), "full": round(share, 3)})
    return found


def _gap_rows(scene: Scene, gaps: dict[str, Spans], part: Part) -> list[Row]:
    rows: list[Row] = []
    for cause, spans in gaps.items():
        what = scene.words(cause)
        for low, high in _apart(spans, part):
            where = scene.where(cause, (low + high) // 2)
            begin, end = low - part.begin, high - part.begin
            rows.append(_row("device idle, why", begin, end, CAUSE_CLASS[cause], what=what, where=where))
    return rows


def _apart(spans: Spans, part: Part) -> list[tuple[int, int]]:
    """Begin and end of each, those joined that could not be told apart."""
    if spans.start.size > _BARS:
        spans = union(spans.start, spans.end, close=part.length // _BARS)
    return list(zip(spans.start.tolist(), spans.end.tolist(), strict=True))


def _spans(lane: str, spans: Spans, part: Part, kind: str, *, what: str) -> list[Row]:
    return [_row(lane, low - part.begin, high - part.begin, kind, what=what) for low, high in _apart(spans, part)]


def _row(lane: str, start: int, end: int, kind: str, *, what: str, where: str | None = None) -> Row:
    return {
        "lane": lane,
        "start": round(start * _MS, 5),
        "end": round(end * _MS, 5),
        "class": kind,
        "full": 1,
        "what": what,
        "ms": number((end - start) * _MS) or "?",
        "where": clean(where, ascii_only=False) if where else "-",
    }


def _table(scene: Scene, gaps: dict[str, Spans], begin: int) -> Table:
    """The longest gaps of the step."""
    found = [
        (stop - start, start, cause)
        for cause, spans in gaps.items()
        for start, stop in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    ]
    found.sort(reverse=True)
    rows: list[tuple[str | None, ...]] = []
    for length, start, cause in found[:_GAPS]:
        where = scene.where(cause, start + length // 2)
        rows.append(
            (
                number((start - begin) * _MS),
                number(length * _MS),
                scene.words(cause),
                clean(where, ascii_only=False) if where else "not known",
            )
        )
    return Table(
        columns=("at, ms", "idle, ms", "because", "line"),
        rows=rows,
        names=frozenset({3}),
        caption="The longest gaps of this step",
    )

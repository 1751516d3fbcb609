"""A trace for ui.perfetto.dev: steps, causes of gaps and findings as tracks of their own beside what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from underfed.errors import MeasurementError
from underfed.pictures.material import Material
from underfed.pictures.scene import CAUSE_WORDS, Scene, scene_of
from underfed.pictures.steps import of_log
from underfed.report.text import clean
from underfed.report.words import gain_words
from underfed.timeline import hostcalls as h
from underfed.timeline.intervals import Spans
from underfed.timeline.model import KERNEL, MEMCPY

#: One process a kind of track; Perfetto shows them by name.
_SAYS, _DEVICE, _HOST, _LOADER = 1, 2, 3, 4
_NAMES = {_SAYS: "underfed", _DEVICE: "device", _HOST: "host", _LOADER: "loader workers"}
#: More events than this make the viewer slow; the longest ones are kept.
MOST_EVENTS = 200_000
#: For so many of the longest gaps the stack at their time is looked up; the others have the line that their cause has
#: most often.
_LOOKED_UP = 1000
_US = 1e-3

Event = dict[str, Any]


class Tracks:
    """Collects events; every track holds slices that never overlap partly, as the format wants it."""

    def __init__(self, zero: int) -> None:
        self.zero = zero
        self.events: list[Event] = []
        self._numbers: dict[tuple[int, str], int] = {}
        self._ends: dict[tuple[int, int], int] = {}

    def number(self, process: int, name: str) -> int:
        """Return the number of a track, made at its first use."""
        key = process, name
        if key not in self._numbers:
            if not any(known == process for known, _ in self._numbers):
                self._meta("process_name", process, 0, name=_NAMES[process])
            self._numbers[key] = len(self._numbers) + 1
            self._meta("thread_name", process, self._numbers[key], name=name)
            self._meta("thread_sort_index", process, self._numbers[key], sort_index=self._numbers[key])
        return self._numbers[key]

    def _meta(self, what: str, process: int, thread: int, **args: Any) -> None:
        self.events.append({"ph": "M", "name": what, "pid": process, "tid": thread, "ts": 0, "args": args})

    def slices(self, process: int, track: str, found: Iterable[tuple[int, int, str, dict[str, Any]]]) -> None:
        """Add slices (begin, end, name, args); what would overlap goes to a second track of that name."""
        for begin, end, name, args in sorted(found, key=lambda one: (one[0], -one[1])):
            at, number = 1, self.number(process, track)
            while self._ends.get((process, number), begin) > begin:
                at += 1
                number = self.number(process, f"{track} ({at})")
            self._ends[process, number] = end
            event: Event = {
                "ph": "X",
                "cat": _NAMES[process],
                "name": clean(name, ascii_only=False)[:200] or "?",
                "pid": process,
                "tid": number,
                "ts": round((begin - self.zero) * _US, 3),
                "dur": round(max(0, end - begin) * _US, 3),
            }
            if args:
                event["args"] = args
            self.events.append(event)


def render(material: Material) -> bytes:
    """Return the trace as JSON. Raises MeasurementError where there is nothing that has a time."""
    scene = scene_of(material)
    if scene is not None:
        zero, end = _extent(scene)
        tracks = Tracks(zero)
        _findings(tracks, material, zero, end)
        _scene(tracks, scene, zero, end)
    elif material.log is not None and (steps := of_log(material.log)):
        tracks = Tracks(0)
        end = int(steps[-1].at * 1e9 + steps[-1].ms * 1e6)
        _findings(tracks, material, 0, end)
        _recorded(tracks, material)
    else:
        raise MeasurementError("report: no step and no device event has a time here, so there is no trace to draw")
    # What began before the traced stretch (a batch in the making) moves the zero: the format knows no negative time.
    before = min((event["ts"] for event in tracks.events), default=0)
    for event in tracks.events:
        if event["ph"] != "M":
            event["ts"] = round(event["ts"] - min(0, before), 3)
    document = {
        "displayTimeUnit": "ms",
        "otherData": {"made_by": "underfed", "verdict": clean(material.diagnosis.verdict.text, ascii_only=False)},
        "traceEvents": tracks.events,
    }
    # Plain UTF-8: Perfetto's reader leaves escapes like \u00e4 as they are.
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _extent(scene: Scene) -> tuple[int, int]:
    starts = [step[1] for step in scene.steps] + scene.busy.start[:1].tolist()
    ends = [step[2] for step in scene.steps] + scene.busy.end[-1:].tolist()
    return min(starts), max(ends)


def _findings(tracks: Tracks, material: Material, begin: int, end: int) -> None:
    diagnosis = material.diagnosis
    verdict = diagnosis.verdict
    said: dict[str, Any] = {"confidence": verdict.confidence, "bound": verdict.bound}
    if material.shown_rank is not None:
        said["rank that is drawn"] = material.shown_rank
    tracks.slices(_SAYS, "verdict", [(begin, end, verdict.text, said)])
    for finding in diagnosis.findings:
        args = {
            "summary": clean(finding.summary, ascii_only=False),
            "gain": gain_words(finding.gain),
            "fix": clean(finding.fix.text, ascii_only=False),
            "where": clean(finding.where or "not known", ascii_only=False),
            "helps now": "yes" if finding.helps_now else clean(finding.note or "no", ascii_only=False),
        }
        tracks.slices(_SAYS, f"finding {finding.rule}", [(begin, end, f"{finding.rule} {finding.name}", args)])


def _scene(tracks: Tracks, scene: Scene, begin: int, end: int) -> None:
    steps = [
        (start, stop, f"step {number}", {"ms": round((stop - start) * 1e-6, 4)}) for number, start, stop in scene.steps
    ]
    tracks.slices(_SAYS, "steps", steps)
    gaps = scene.gaps(begin, end)
    lengths = np.concatenate([spans.end - spans.start for spans in gaps.values()] or [np.zeros(0, np.int64)])
    looked_up = int(np.sort(lengths)[-_LOOKED_UP:][0]) if lengths.size else 0
    for cause, spans in gaps.items():
        said, mostly = scene.words(cause), scene.where(cause)
        named: list[tuple[int, int, str, dict[str, Any]]] = []
        for low, high, name, _ in _of(spans, said, {}):
            where = scene.where(cause, (low + high) // 2) if high - low >= looked_up else mostly
            named.append((low, high, name, {"where": clean(where, ascii_only=False)} if where else {}))
        tracks.slices(_SAYS, f"device idle: {said}", named)
    for cause in h.NAMED:
        if cause in scene.view.classes:
            tracks.slices(_HOST, CAUSE_WORDS[cause], _of(scene.view.classes[cause], CAUSE_WORDS[cause], {}))
    tracks.slices(_HOST, CAUSE_WORDS[h.LAUNCH], _of(scene.view.launching, CAUSE_WORDS[h.LAUNCH], {}))
    _device(tracks, scene)
    for worker, fetches in scene.fetches(begin, end).items():
        found = [(start, stop, "a batch", {"on a CPU, ms": round(cpu * 1e-6, 3)}) for start, stop, cpu in fetches]
        tracks.slices(_LOADER, f"worker {worker}", found)


def _of(spans: Spans, name: str, args: dict[str, Any]) -> list[tuple[int, int, str, dict[str, Any]]]:
    start, end = _longest(spans.start, spans.end)
    return [(a, b, name, args) for a, b in zip(start, end, strict=True)]


def _longest(start: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> tuple[list[int], list[int]]:
    if start.size > MOST_EVENTS // 10:
        kept = np.argsort(start - end, kind="stable")[: MOST_EVENTS // 10]
        start, end = start[kept], end[kept]
    return start.tolist(), end.tolist()


def _device(tracks: Tracks, scene: Scene) -> None:
    device, names = scene.timeline.device, scene.timeline.names
    rows = scene.rows
    if rows.size > MOST_EVENTS:
        rows = rows[np.argsort(device.start[rows] - device.end[rows], kind="stable")[:MOST_EVENTS]]
    kind, stream = device.kind[rows], device.stream[rows]
    for number in np.unique(stream).tolist():
        for track, flags in (
            (f"stream {number}, kernels", (kind == KERNEL) & ~scene.comms[rows]),
            (f"stream {number}, collectives", scene.comms[rows]),
            (f"stream {number}, copies", kind != KERNEL),
        ):
            mine = rows[flags & (stream == number)]
            found: list[tuple[int, int, str, dict[str, Any]]] = []
            for row in mine.tolist():
                size = int(device.bytes[row])
                args = {"bytes": size} if device.kind[row] == MEMCPY and size >= 0 else {}
                found.append((int(device.start[row]), int(device.end[row]), names[device.name[row]], args))
            tracks.slices(_DEVICE, track, found)


def _recorded(tracks: Tracks, material: Material) -> None:
    """Draw the steps of a recording without a traced window, with the parts of each in the order of their size."""
    if material.log is None:
        return
    steps, parts = [], []
    for step in of_log(material.log)[: MOST_EVENTS // 10]:
        begin = int(step.at * 1e9)
        steps.append((begin, begin + int(step.ms * 1e6), f"step {step.number}", {"ms": round(step.ms, 4)}))
        for name, ms in step.parts.items():
            if ms > 0:
                parts.append((name, begin, begin + int(ms * 1e6)))
    tracks.slices(_SAYS, "steps", steps)
    for name in dict.fromkeys(one[0] for one in parts):
        slices: list[tuple[int, int, str, dict[str, Any]]] = [
            (a, b, f"{name}, {(b - a) * 1e-6:.3g} ms", {}) for label, a, b in parts if label == name
        ]
        # When in the step each part was is not recorded, only how long it took: each is drawn from the step's begin.
        tracks.slices(_HOST, f"time in the step: {name}", slices)

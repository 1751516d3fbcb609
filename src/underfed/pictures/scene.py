"""One traced stretch on one clock: steps, what the host was at, fetches, gaps by cause and the line behind them."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from underfed.diagnose.gather import training_loader
from underfed.pictures.material import Material
from underfed.recording import records as r
from underfed.timeline import hostcalls as h
from underfed.timeline import steps as s
from underfed.timeline.device import Rows, communicating, devices
from underfed.timeline.idle import HostView, host_view
from underfed.timeline.intervals import NOTHING, Flags, Spans, intersect, join, subtract, union
from underfed.timeline.launches import match
from underfed.timeline.model import PYTHON, Timeline
from underfed.timeline.pieces import pieces

#: Causes of idle time by the class that they are drawn as; the same grouping as in the budget of a step.
CAUSE_CLASS = {
    h.DATA: "data",
    h.TRANSFER: "transfer",
    h.SYNC: "sync",
    h.LAUNCH: "launch",
    h.HOST: "launch",
    h.ALLOCATOR: "stall",
    h.GC: "stall",
    h.COMPILE: "stall",
    h.STALL: "stall",
    h.SILENT: "stall",
    h.QUEUED: "other",
    h.UNKNOWN: "other",
}
CAUSE_WORDS = {
    h.DATA: "the host waits for the next batch",
    h.TRANSFER: "input is copied to the device",
    h.SYNC: "a sync emptied the queue",
    h.LAUNCH: "the host is launching",
    h.HOST: "operators that launch nothing",
    h.ALLOCATOR: "the allocator calls the driver",
    h.GC: "garbage collection",
    h.COMPILE: "compilation",
    h.STALL: "a checkpoint is written",
    h.SILENT: "Python code, nothing recorded",
    h.QUEUED: "queued behind the device itself",
    h.UNKNOWN: "no launch is recorded for it",
}
#: Classes of the agent's stack samples that tell the line behind a cause.
_SAMPLED = {
    h.DATA: ("data",),
    h.TRANSFER: ("h2d",),
    h.SYNC: ("sync", "d2h"),
    h.LAUNCH: ("forward", "backward", "optimizer"),
    h.HOST: ("forward", "backward", "optimizer"),
    h.ALLOCATOR: ("cache",),
    h.GC: ("gc",),
    h.COMPILE: ("compile",),
    h.STALL: ("checkpoint",),
    h.SILENT: ("checkpoint", "stall", "logging", "progress", "plotting", "eval"),
}
#: What the samples of silent time may have seen, in words.
_SEEN = {
    "checkpoint": "checkpoints",
    "logging": "logging",
    "progress": "a progress bar",
    "plotting": "plotting",
    "eval": "validation",
}
#: A silence shorter than this is Python between two launches; a wait for the loader fills most of what it explains.
_LEAST_NS = 1_000_000
_MOSTLY = 0.7
_PYTHON_LINE = re.compile(r"^(?P<file>[^<].*\.pyw?)\((?P<line>\d+)\): ")
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|torch|lib/python[\d.]+)/")


def _shortness(span: tuple[int, int]) -> int:
    return span[0] - span[1]


@dataclass(frozen=True)
class Scene:
    """A timeline with its device of most work; all times are ns on the trace's own clock."""

    material: Material
    timeline: Timeline
    view: HostView
    comms: Flags
    rows: Rows
    busy: Spans

    @cached_property
    def steps(self) -> list[tuple[int, int, int]]:
        """Number, begin and end of each traced step: from the recording, else as the trace marks them."""
        log, window = self.material.log, self.material.window
        if log is not None and window is not None:
            return self._recorded(log.step_rows(), window)
        marks = s.marks(self.timeline)
        return list(zip(marks.number.tolist(), marks.start.tolist(), marks.end.tolist(), strict=True))

    def _recorded(self, rows: list[list[int]], window: r.Trace) -> list[tuple[int, int, int]]:
        at = {name: place for place, name in enumerate(r.STEP_COLUMNS)}
        found = []
        for number, row in enumerate(rows):
            end, wall = row[at["end"]], row[at["wall"]]
            if row[at["flags"]] & r.TRACED and window.begin <= end - wall + 1_000_000 and end <= window.end + 1_000_000:
                found.append((number, self.moment(end - wall), self.moment(end)))
        return found

    def moment(self, monotonic: int) -> int:
        """Return a time of the machine's monotonic clock on the trace's clock; needs a recorded window."""
        window = self.material.window
        shift = window.begin_unix - window.begin if window is not None else 0
        return monotonic + shift - self.timeline.base_ns

    def fetches(self, begin: int, end: int) -> dict[int, list[tuple[int, int, int]]]:
        """Begin, end and CPU ns of the fetches that touch a stretch, by loader worker."""
        found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        recording = self.material.recording
        if recording is None or self.material.window is None:
            return found
        for log in [*recording.processes, *recording.workers]:
            for line in log.of(r.Fetches):
                for row in line.rows:
                    if line.worker is None or len(row) < 3 or row[0] is None or row[1] is None:
                        continue
                    stop = self.moment(row[0])
                    if stop > begin and stop - row[1] < end:
                        found[line.worker].append((stop - row[1], stop, row[2] or 0))
        return dict(sorted(found.items()))

    def gaps(self, begin: int, end: int) -> dict[str, Spans]:
        """Return the idle time of the device in a stretch as spans by cause."""
        found = pieces(self.view, self.rows, self.busy, begin, end)
        waits = intersect(found.get(h.SILENT, NOTHING), self.loader_waits)
        if waits.start.size:
            found[h.DATA] = join(found.get(h.DATA, NOTHING), waits)
            found[h.SILENT] = subtract(found[h.SILENT], waits)
        return {cause: spans for cause, spans in found.items() if spans.start.size}

    @cached_property
    def loader_waits(self) -> Spans:
        """Silence that was a wait for the loader. A trace of the device alone does not show it; the recording timed it.

        How long each step waited is known, when in it is not: the longest silences of a step are its wait, as far as it
        can have filled most of each.
        """
        log, window = self.material.log, self.material.window
        if log is None or window is None:
            return NOTHING
        data, start = r.STEP_COLUMNS.index("data"), r.STEP_COLUMNS.index("start")
        rows = log.step_rows()
        begins, ends = [], []
        for number, begin, end in self.steps:
            left = rows[number][data] + rows[number][start]
            silent = pieces(self.view, self.rows, self.busy, begin, end).get(h.SILENT, NOTHING)
            for low, high in sorted(zip(silent.start.tolist(), silent.end.tolist(), strict=True), key=_shortness):
                if high - low < _LEAST_NS or left < _MOSTLY * (high - low):
                    break
                left -= high - low
                begins.append(low)
                ends.append(high)
        return union(np.array(begins, np.int64), np.array(ends, np.int64))

    @cached_property
    def _sampled(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for line in self.material.log.of(r.Stacks) if self.material.log is not None else []:
            for _, kind, where, _, ns, _ in line.rows:
                found[kind][where] += ns
        return found

    @cached_property
    def _python(self) -> Rows:
        host, names = self.timeline.host, self.timeline.names
        ours = np.array(
            [bool(_PYTHON_LINE.match(name)) and not _LIBRARY.search(name) for name in names] or [False], np.bool_
        )
        rows = np.flatnonzero((host.kind == PYTHON) & ours[host.name])
        return rows[np.argsort(host.start[rows], kind="stable")]

    def words(self, cause: str) -> str:
        """Return a cause in words; of silence, what the samples of the whole run mostly saw in its place."""
        if cause == h.SILENT:
            seen = {kind: sum(self._sampled[kind].values()) for kind in _SAMPLED[cause]}
            most = max(seen, key=lambda kind: seen[kind])
            if most in _SEEN and seen[most] > _MOSTLY * sum(seen.values()):
                return f"Python code; by samples mostly {_SEEN[most]}"
        return CAUSE_WORDS[cause]

    def where(self, cause: str, moment: int | None = None) -> str | None:
        """Return the line of the user's code behind idle time: on the trace's stack at a moment, else as sampled."""
        host, rows = self.timeline.host, self._python
        if rows.size and moment is not None:
            # The innermost function that still runs is the last one to have begun.
            open_ = rows[(host.start[rows] <= moment) & (host.end[rows] > moment)]
            if open_.size:
                found = _PYTHON_LINE.match(self.timeline.names[host.name[open_[-1]]])
                return f"{found['file']}:{found['line']}" if found else None
        best: dict[str, int] = defaultdict(int)
        for kind in _SAMPLED.get(cause, ()):
            for where, ns in self._sampled[kind].items():
                if not _LIBRARY.search(where):
                    best[where] += ns
        if cause == h.DATA and not best and self.material.log is not None:
            # The thread that waits for workers stands in the library: the line to change is where the loader is made.
            loader = training_loader(self.material.log)
            return loader.made_at if loader is not None else None
        return max(best, key=lambda where: best[where], default=None)


def scene_of(material: Material) -> Scene | None:
    """Return the scene of a trace or of a recording's traced window; None where no device event was traced."""
    timeline = material.timeline
    if timeline is None:
        return None
    found = devices(timeline.device)
    if not found:
        return None
    device = timeline.device

    def busy(rows: Rows) -> Spans:
        return union(device.start[rows], device.end[rows])

    rows = max(found.values(), key=lambda rows: int((device.end[rows] - device.start[rows]).clip(min=0).sum()))
    launches = match(timeline)
    view = host_view(timeline, launches, s.marks(timeline).thread)
    return Scene(material, timeline, view, communicating(timeline), rows, busy(rows))

"""A recording as it grows: whole new lines of each file, and the last minute of them as a Recording of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording

#: What a verdict looks back on: this many seconds of steps, and no fewer or more steps than these.
WINDOW_S = 60.0
LEAST_ROWS = 64
MOST_ROWS = 20_000

_MOST_BYTES = 4 << 20
_MOST_FILES = 512
_MOST_HOST = 120
#: Lines without a step in them, of workers and of what is told once; far more than a minute has.
_MOST_LINES = 4_000
_MOST_TOLD = 200

_LINE = msgspec.json.Decoder(r.AnyLine)
_ANY = msgspec.json.Decoder()
_PASSING = (r.Steps, r.Stacks, r.Fetches, r.Syncs, r.Copies)
_WIDTH = len(r.STEP_COLUMNS)
_INDEX, _END, _WALL = (r.STEP_COLUMNS.index(name) for name in ("index", "end", "wall"))


class Tail:
    """One file: what was appended since the last call. A line that is not whole yet waits."""

    def __init__(self, path: Path) -> None:
        self._path, self._at, self._rest = path, 0, b""

    def lines(self) -> Iterator[bytes]:
        """Yield whole new lines, a few MB of them at most; the others come with the next call."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return
        try:
            if os.fstat(descriptor).st_size < self._at:
                self._at, self._rest = 0, b""  # written anew
            data = os.pread(descriptor, _MOST_BYTES, self._at)
        except OSError:
            return
        finally:
            os.close(descriptor)
        self._at += len(data)
        whole, newline, rest = (self._rest + data).rpartition(b"\n")
        self._rest = rest if len(rest) <= _MOST_BYTES else b""
        if newline:
            yield from whole.split(b"\n")


class Growing:
    """One process's log: `take` reads on, `log` is what is left of its last minute."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.process: r.Process | None = None
        self.steps = 0
        self._tail = Tail(path)
        self._told: list[r.Line] = []
        self._passing: list[r.Line] = []
        self._rows = 0

    def take(self) -> list[list[int]]:
        """Read on; returns the rows of new steps."""
        fresh: list[list[int]] = []
        for raw in self._tail.lines():
            try:
                line = _LINE.decode(raw)
            except msgspec.MsgspecError:
                continue
            if isinstance(line, r.Process):
                self.process = self.process or line
            elif isinstance(line, _PASSING):
                self._passing.append(line)
                if isinstance(line, r.Steps):
                    rows = [row for row in line.rows if len(row) == _WIDTH]
                    self._rows += len(rows)
                    fresh += rows
            else:
                self._told.append(line)
        self.steps += len(fresh)
        self._forget()
        return fresh

    def _forget(self) -> None:
        """Drop what lies before the window: whole flushes, so that steps and what was seen in them go together."""
        if len(self._told) > _MOST_TOLD:
            loaders = [line for line in self._told if isinstance(line, (r.Loader, r.Trace, r.End))][-_MOST_TOLD // 2 :]
            others = [line for line in self._told if not isinstance(line, (r.Loader, r.Trace, r.End))]
            self._told = loaders + others[-_MOST_TOLD // 2 :]
        last = next((_end(line) for line in reversed(self._passing) if _end(line) is not None), None)
        drop = rows = 0
        for at, line in enumerate(self._passing):
            count = len(line.rows) if isinstance(line, r.Steps) else 0
            end = _end(line)
            if end is not None and last is not None:
                left = self._rows - rows - count
                old = end < last - WINDOW_S * 1e9 and (left >= LEAST_ROWS or not isinstance(line, r.Steps))
                if not old and left < MOST_ROWS:
                    break
                drop, rows = at + 1, rows + count
        drop = max(drop, len(self._passing) - _MOST_LINES)
        self._rows -= sum(len(line.rows) for line in self._passing[:drop] if isinstance(line, r.Steps))
        del self._passing[:drop]

    def log(self) -> ProcessLog | None:
        """Return the last minute as the log of a process that began with it; None before its first line."""
        if self.process is None:
            return None
        first = next((line.rows[0][_INDEX] for line in self._passing if isinstance(line, r.Steps) and line.rows), 0)
        lines = [_from(line, first) for line in (*self._told, *self._passing)]
        return ProcessLog(self.name, self.process, lines)


def _end(line: r.Line) -> int | None:
    """Return when the last thing in a line ended, on the monotonic clock in ns; None where it does not say."""
    if isinstance(line, r.Steps) and line.rows and len(line.rows[-1]) == _WIDTH:
        return line.rows[-1][_END]
    if isinstance(line, r.Fetches) and line.rows and line.rows[-1]:
        return line.rows[-1][0]
    return None


def _from(line: r.Line, first: int) -> r.Line:
    """Count steps from the window's first one: warm-up is asked for by a step's place in what is there."""
    if first == 0:
        return line
    if isinstance(line, r.Steps):
        return r.Steps(rows=[[row[0] - first, *row[1:]] if row else row for row in line.rows])
    if isinstance(line, (r.Facts, r.Ddp)):
        return msgspec.structs.replace(line, step=max(0, line.step - first))
    return line


class GrowingRecording:
    """A recording's folder while it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._logs: dict[str, Growing] = {}
        self._host = Tail(folder / "host.jsonl")
        self._box: dict[str, Any] | None = None
        self._lines: list[dict[str, Any]] = []
        self.main: Growing | None = None

    def poll(self) -> tuple[list[float], list[dict[str, Any]]]:
        """Read on; returns times of new steps of the main process in ms, and new lines of the machine."""
        fresh: dict[str, list[list[int]]] = {}
        for name in self._names():
            fresh[name] = self._logs.setdefault(name, Growing(self.folder / name)).take()
        trained = [log for log in self._logs.values() if log.steps]
        # the process with most steps; of ranks, which have equally many, the lowest
        most = max((log.steps for log in trained), default=0)
        if self.main is None or self.main.steps < most // 2:
            self.main = min((log for log in trained if log.steps >= most // 2), key=_rank, default=None)
        rows = fresh.get(self.main.name, []) if self.main is not None else []
        return [row[_WALL] / 1e6 for row in rows], self._read_host()

    def _names(self) -> list[str]:
        try:
            found = sorted(entry.name for entry in os.scandir(self.folder) if _ours(entry.name))
        except OSError:
            return list(self._logs)
        return found[:_MOST_FILES]

    def _read_host(self) -> list[dict[str, Any]]:
        fresh = []
        for raw in self._host.lines():
            try:
                line = _ANY.decode(raw)
            except msgspec.MsgspecError:
                continue
            if isinstance(line, dict):
                self._box = line if line.get("k") == "box" else self._box
                fresh.append(line)
        self._lines = [*self._lines, *(line for line in fresh if line.get("k") != "box")][-_MOST_HOST:]
        return fresh

    @property
    def box(self) -> dict[str, Any] | None:
        """What the machine is."""
        return self._box

    def recording(self) -> Recording:
        """Return the last minute as a Recording."""
        logs = [log for growing in self._logs.values() if (log := growing.log()) is not None]
        box = [self._box] if self._box is not None else []
        return Recording(
            folder=self.folder,
            header={},
            processes=[log for log in logs if log.process.role != "worker"],
            workers=[log for log in logs if log.process.role == "worker"],
            host=[*box, *self._lines],
        )


def _ours(name: str) -> bool:
    return name.startswith("p") and name.endswith(".jsonl")


def _rank(log: Growing) -> tuple[int, int, str]:
    rank = log.process.rank if log.process is not None else None
    return (rank if rank is not None else 0, -log.steps, log.name)

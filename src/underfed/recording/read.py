"""Reading a recording: whole lines only, so one that was cut short by a kill reads up to the last second."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from underfed.errors import UsageError
from underfed.recording import records as r

_LINE = msgspec.json.Decoder(r.AnyLine)
_ANY = msgspec.json.Decoder()
_T = TypeVar("_T", bound=r.Line)

HEADER = "recording.json"


@dataclass
class ProcessLog:
    """Everything one process wrote, in order."""

    name: str
    process: r.Process
    lines: list[r.Line] = field(default_factory=list)
    damaged: int = 0

    def of(self, kind: type[_T]) -> list[_T]:
        """Return the lines of one kind."""
        return [line for line in self.lines if isinstance(line, kind)]

    def step_rows(self) -> list[list[int]]:
        """Return all step rows that have every column."""
        width = len(r.STEP_COLUMNS)
        return [row for line in self.of(r.Steps) for row in line.rows if len(row) == width]

    @property
    def ended(self) -> bool:
        """Whether the process ended in good order."""
        return any(isinstance(line, r.End) for line in self.lines)


@dataclass(repr=False)
class Recording:
    """A recording as read: the training processes, their loader workers, and the machine."""

    folder: Path
    header: dict[str, Any]
    processes: list[ProcessLog]
    workers: list[ProcessLog]
    host: list[dict[str, Any]]
    keep: object = field(default=None, compare=False)
    """What must live as long as this does, because the folder goes away with it."""

    def frame(self, table: str, library: str | None = None) -> Any:
        """Return `steps`, `fetches`, `kernels` or `gaps` as a frame of polars or pandas; see `underfed.frame`."""
        from underfed.library.tables import frame

        return frame(self, table, library)

    def __repr__(self) -> str:
        from underfed.library.show import recording_line

        return f"<{recording_line(self)}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from underfed.library.show import recording_html, recording_line

        return {"text/plain": recording_line(self), "text/html": recording_html(self)}

    def _repr_html_(self) -> str:
        from underfed.library.show import recording_html

        return recording_html(self)


def _whole_lines(path: Path) -> Iterator[bytes]:
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        cut = data.rfind(b"\n")
        yield from data[: cut + 1].splitlines()


def read_process(path: Path) -> ProcessLog | None:
    """Read one process's file; None where its first line is missing or foreign."""
    log: ProcessLog | None = None
    damaged = 0
    for raw in _whole_lines(path):
        try:
            line = _LINE.decode(raw)
        except msgspec.MsgspecError:
            damaged += 1
            continue
        if isinstance(line, r.Process):
            if log is None:
                log = ProcessLog(path.name, line)
        elif log is not None:
            log.lines.append(line)
    if log is not None:
        log.damaged = damaged
    return log


def read_host(path: Path) -> list[dict[str, Any]]:
    """Read the machine's lines; those that are damaged are left out."""
    found = []
    for raw in _whole_lines(path):
        with contextlib.suppress(msgspec.MsgspecError):
            line = _ANY.decode(raw)
            if isinstance(line, dict):
                found.append(line)
    return found


def read(folder: Path) -> Recording:
    """Read a recording's folder.

    Raises UsageError where the folder is not a recording.
    """
    header_file = folder / HEADER
    header: dict[str, Any] = {}
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        decoded = _ANY.decode(header_file.read_bytes())
        header = decoded if isinstance(decoded, dict) else {}
    logs = [log for path in sorted(folder.glob("p*.jsonl")) if (log := read_process(path)) is not None]
    if not header and not logs:
        raise UsageError(f"{folder} is not a recording (no {HEADER}): give the folder that `underfed run` printed")
    schema = header.get("schema", "underfed.recording/1")
    if schema != "underfed.recording/1":
        raise UsageError(f"{folder} was written by another version ({schema}); read it with that version of underfed")
    return Recording(
        folder=folder,
        header=header,
        processes=[log for log in logs if log.process.role != "worker"],
        workers=[log for log in logs if log.process.role == "worker"],
        host=read_host(folder / "host.jsonl"),
    )

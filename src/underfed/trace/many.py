"""Many traces at once: which files are meant, and reading them in parallel processes; only small facts travel back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from glob import glob
from multiprocessing import get_context
from pathlib import Path

import msgspec

from underfed.errors import MeasurementError, UnderfedError, UsageError
from underfed.timeline.facts import TraceFacts
from underfed.trace.source import shown

_SUFFIXES = (".json", ".json.gz")
#: Below this many bytes in all, starting processes takes longer than they save.
_WORTH_PROCESSES = 16 << 20
#: Each process inflates the whole file, so more of them than this gain nothing on one file.
MOST_PROCESSES = 6


def files_of(paths: Sequence[str]) -> list[Path]:
    """Return the files meant by files, folders and glob patterns, in order and once; raises UsageError for none.

    A folder gives the files in it and below it that are named as traces (`*trace*.json`, `.json.gz`), or else all JSON
    files.
    """
    found: dict[Path, None] = {}
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.name.endswith(_SUFFIXES) and one.is_file())
            inside = [one for one in inside if "trace" in one.name] or inside
            if not inside:
                raise UsageError(f"{shown(path)} holds no .json or .json.gz file: name the trace itself")
        elif not path.exists() and any(mark in text for mark in "*?["):
            matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - a pattern may be absolute
            inside = [Path(one) for one in matches if Path(one).is_file()]
            if not inside:
                raise UsageError(f"no file matches {shown(text)}")
        else:
            inside = [path]
        found.update(dict.fromkeys(inside))
    return list(found)


def read_many(files: Sequence[Path], workers: int | None = None) -> tuple[list[tuple[Path, TraceFacts]], list[str]]:
    """Read traces; a file that cannot be read becomes a line of the limits, unless none can.

    Raises the UnderfedError of the first file where not one could be read, and MeasurementError where a reading process
    was killed.
    """
    found: list[tuple[Path, TraceFacts]] = []
    refused: list[UnderfedError] = []
    for path, outcome in zip(files, _outcomes(files, workers), strict=True):
        if isinstance(outcome, UnderfedError):
            refused.append(outcome)
        else:
            found.append((path, outcome))
    if not found:
        raise refused[0]
    return found, [f"left out: {error}" for error in refused]


def _outcomes(files: Sequence[Path], workers: int | None) -> Iterable[TraceFacts | UnderfedError]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = min(workers or usable, len(files))
    sizes = sum(path.stat().st_size for path in files if path.is_file())
    if number < 2 or (workers is None and sizes < _WORTH_PROCESSES):
        each = min(workers or usable, MOST_PROCESSES) if len(files) == 1 else 1
        return [_decoded(_encoded(str(path), each)) for path in files]
    try:
        with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
            return [_decoded(line) for line in pool.map(_encoded, map(str, files))]
    except BrokenProcessPool:
        raise MeasurementError(
            "a process that read a trace was killed, most likely for memory: read fewer files at once"
        ) from None


def _encoded(path: str, processes: int = 1) -> tuple[bytes, str]:
    from underfed.trace import trace_facts

    try:
        return msgspec.msgpack.encode(trace_facts(path, processes=processes)), ""
    except UnderfedError as error:
        return b"", str(error)


def _decoded(outcome: tuple[bytes, str]) -> TraceFacts | UnderfedError:
    data, error = outcome
    return UsageError(error) if error else msgspec.msgpack.decode(data, type=TraceFacts)

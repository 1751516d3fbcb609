"""What was seen as a frame of polars or pandas: one row a step, a fetch, a kernel or a gap of the device."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from underfed.errors import UsageError
from underfed.library.reading import PathLike, is_recording, open
from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording

if TYPE_CHECKING:
    from underfed.library.watching import Watch
    from underfed.pictures.scene import Scene

_CLOSED_BY = ("optimizer", "backward", "loader")
#: Looking up the line behind a gap takes a search through the trace: done for the longest ones.
_GAPS_WITH_LINE = 1000
_SECOND = 1e-9
_MS = 1e-6
_US = 1e-3


class Column(NamedTuple):
    """A column: its type, its unit (empty for none), and what it holds. All types but `bool` can be null."""

    name: str
    type: Literal["int", "float", "str", "bool"]
    unit: str
    meaning: str


_WHO = (
    Column("pid", "int", "", "process"),
    Column("rank", "int", "", "rank, null outside distributed training"),
)
_REGIONS = {
    "data": "waiting for the training loader's next batch",
    "start": "making a loader's iterator, its workers' start included",
    "eval": "waiting for another loader than the training one",
    "h2d": "calls that copy to the device",
    "d2h": "calls that copy from the device",
    "sync": "calls that wait for the device",
    "gc": "garbage collection",
    "backward": "backward passes",
    "optimizer": "optimizer steps",
    "comms": "collectives that the program calls",
    "cache": "emptying the device's memory cache",
    "pre": "the rest between a batch and the backward pass",
    "mid": "the rest between backward pass and optimizer step",
    "post": "the rest behind the optimizer step",
}
_COUNTS = {
    "fetches": "batches taken from a loader",
    "syncs": "calls that waited for the device",
    "copies": "copies between host and device",
    "collections": "garbage collections",
}
TABLES: dict[str, tuple[Column, ...]] = {
    "steps": (
        *_WHO,
        Column("step", "int", "", "number of the step in its process"),
        Column("closed_by", "str", "", "optimizer, backward or loader: what the end of the step was seen by"),
        Column("at_s", "float", "s", "end of the step, since the first process was first seen"),
        Column("wall_ms", "float", "ms", "length of the step; the parts below add up to it"),
        *(Column(f"{name}_ms", "float", "ms", meaning) for name, meaning in _REGIONS.items()),
        *(Column(name, "int", "", meaning) for name, meaning in _COUNTS.items()),
        Column("traced", "bool", "", "whether the traced window covers it, which makes it slower"),
        Column("new_epoch", "bool", "", "whether a loader's iterator was made in it"),
    ),
    "fetches": (
        *_WHO,
        Column("worker", "int", "", "loader worker, null for a fetch on the training thread"),
        Column("at_s", "float", "s", "end of the fetch, on the clock of `steps`"),
        Column("wall_ms", "float", "ms", "time to make the batch"),
        Column("cpu_ms", "float", "ms", "CPU time of the thread that made it"),
        Column("process_cpu_ms", "float", "ms", "CPU time of its process meanwhile"),
        Column("collate_ms", "float", "ms", "part of it in the collate function"),
        Column("samples", "int", "", "samples in the batch"),
        Column("bytes_read", "int", "bytes", "read by system calls, null where not known"),
    ),
    "kernels": (
        Column("kernel", "str", "", "name; the 200 with most time"),
        Column("calls", "int", "", "how often it ran in the traced steps"),
        Column("total_ms", "float", "ms", "all its time, summed over streams"),
        Column("median_us", "float", "us", "median of its runs"),
        Column("longest_us", "float", "us", "longest of its runs"),
    ),
    "gaps": (
        Column("step", "int", "", "traced step in which it begins, null between them"),
        Column("cause", "str", "", "what the launching side was at"),
        Column("wait", "str", "", "row of the budget that it belongs to"),
        Column("start_ms", "float", "ms", "begin, since the trace's first event on the device"),
        Column("length_ms", "float", "ms", "how long the device had nothing to do for this cause"),
        Column("where", "str", "", "line of the user's code behind it, of the 1000 longest, where it is known"),
    ),
}


def frame(source: Recording | Watch | PathLike, table: str, library: str | None = None) -> Any:
    """Return a table as a frame: `steps` and `fetches` of a Recording, `kernels` and `gaps` of a trace or of the
    window that a Recording has traced on a GPU.

    `source` is a Recording, its folder, a watch, or a trace's file. `library` is `polars` or `pandas`; without it
    polars is used where it is installed, else pandas. `underfed.library.tables.TABLES` holds columns and units.

    Raises UsageError where the table cannot be had from the source, or where the library is missing.
    """
    if table not in TABLES:
        raise UsageError(f"frame: no table {table!r}; there are {', '.join(TABLES)}")
    made_by = _library(library)
    trace: PathLike = ""
    if not isinstance(source, str | os.PathLike):
        recording: Recording | None = source if isinstance(source, Recording) else source.recording
    elif is_recording(source):
        recording = open(source)
    else:
        recording, trace = None, source
    if table in {"steps", "fetches"}:
        if recording is None:
            raise UsageError(f"frame: {table} are in a recording, not in a trace; a trace has kernels and gaps")
        rows = _steps(recording) if table == "steps" else _fetches(recording)
    else:
        rows = _traced(trace if recording is None else recording.folder, table)
    return _made(TABLES[table], rows, made_by)


def _library(wanted: str | None) -> str:
    if wanted not in {None, "polars", "pandas"}:
        raise UsageError(f"frame: library={wanted!r}: give polars or pandas")
    for name in (wanted,) if wanted else ("polars", "pandas"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise UsageError(f"frame: needs {wanted or 'polars or pandas'}: pip install 'underfed[frames]'")


def _made(columns: tuple[Column, ...], rows: list[tuple[Any, ...]], library: str) -> Any:
    if library == "polars":
        import polars

        kinds = {"int": polars.Int64, "float": polars.Float64, "str": polars.String, "bool": polars.Boolean}
        return polars.DataFrame(rows, schema={one.name: kinds[one.type] for one in columns}, orient="row")
    import pandas

    types = {"int": "Int64", "float": "float64", "str": "string", "bool": "bool"}
    made = pandas.DataFrame.from_records(rows, columns=[one.name for one in columns])
    return made.astype({one.name: types[one.type] for one in columns})


def _origin(recording: Recording) -> int:
    clocks = [log.process.clock for log in [*recording.processes, *recording.workers] if log.process.clock]
    return min(clocks, default=0)


def _rank_of(log: ProcessLog) -> tuple[int, int | None]:
    return log.process.pid, log.process.rank


def _steps(recording: Recording) -> list[tuple[Any, ...]]:
    origin, regions = _origin(recording), len(r.STEP_REGIONS)
    rows: list[tuple[Any, ...]] = []
    for log in recording.processes:
        for row in log.step_rows():
            index, kind, end, wall, flags = row[:5]
            closed = _CLOSED_BY[kind] if 0 <= kind < len(_CLOSED_BY) else None
            parts = [value * _MS for value in row[5 : 5 + regions]]
            seen = (bool(flags & r.TRACED), bool(flags & r.NEW_EPOCH))
            rows.append(
                (
                    *_rank_of(log),
                    index,
                    closed,
                    (end - origin) * _SECOND,
                    wall * _MS,
                    *parts,
                    *row[5 + regions :],
                    *seen,
                )
            )
    return rows


def _fetches(recording: Recording) -> list[tuple[Any, ...]]:
    origin = _origin(recording)
    rows: list[tuple[Any, ...]] = []
    for log in [*recording.processes, *recording.workers]:
        for line in log.of(r.Fetches):
            for row in line.rows:
                if len(row) < 7 or row[0] is None:
                    continue
                end, wall, cpu, process, read, samples, collate = row[:7]
                times: list[float | None] = [
                    value * _MS if value is not None else None for value in (wall, cpu, process, collate)
                ]
                rows.append((*_rank_of(log), line.worker, ((end or 0) - origin) * _SECOND, *times, samples, read))
    return sorted(rows, key=lambda row: row[3])


def _traced(path: PathLike, table: str) -> list[tuple[Any, ...]]:
    from underfed.pictures.material import load
    from underfed.pictures.scene import scene_of

    material = load([os.fspath(path)])
    scene = scene_of(material)
    if scene is None or material.facts is None:
        raise UsageError(
            f"frame: {table} need device events, and {os.fspath(path)} has none: it ran on no GPU, or untraced"
        )
    if table == "gaps":
        return _gaps(scene)
    return [
        (one.name, one.count, one.total_ns * _MS, one.median_ns * _US, one.longest_ns * _US)
        for one in material.facts.kernels
    ]


def _gaps(scene: Scene) -> list[tuple[Any, ...]]:
    import numpy as np

    from underfed.pictures.scene import CAUSE_CLASS

    steps = scene.steps
    first = int(scene.busy.start[0])
    begin = min([first, *(start for _, start, _ in steps)])
    end = max([int(scene.busy.end[-1]), *(stop for _, _, stop in steps)])
    found = [
        (low, high, cause)
        for cause, spans in scene.gaps(begin, end).items()
        for low, high in zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    ]
    longest = set(sorted(found, key=lambda one: one[0] - one[1])[:_GAPS_WITH_LINE])
    numbers, starts = [one[0] for one in steps], np.array([one[1] for one in steps], np.int64)
    rows = []
    for low, high, cause in sorted(found):
        at = int(np.searchsorted(starts, low, side="right")) - 1
        step = numbers[at] if at >= 0 and low < steps[at][2] else None
        where = scene.where(cause, low) if (low, high, cause) in longest else None
        rows.append((step, cause, CAUSE_CLASS[cause], (low - first) * _MS, (high - low) * _MS, where))
    return rows

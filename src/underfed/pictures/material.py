"""Everything that a report is drawn from: the Diagnosis, and the recording or the traces behind it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from underfed.diagnosis import SCHEMA, Diagnosis, from_json
from underfed.errors import UnderfedError, UsageError
from underfed.pictures.tried import is_trial, read_trial, with_measured
from underfed.recording import records as r
from underfed.recording.read import HEADER, ProcessLog, Recording
from underfed.report.text import clean
from underfed.timeline.facts import TraceFacts
from underfed.timeline.model import Timeline
from underfed.timeline.ranks import Skew
from underfed.trial.records import Trial

#: A Diagnosis beyond this size is none of ours.
_DIAGNOSIS_MOST = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Material:
    """What there is to draw. `log` is the training process whose steps are shown; `window` its traced part."""

    diagnosis: Diagnosis
    title: str
    recording: Recording | None = None
    log: ProcessLog | None = None
    window: r.Trace | None = None
    timeline: Timeline | None = None
    facts: TraceFacts | None = None
    #: Of several ranks the one whose steps, loader, timeline and kernels are shown; None where there is only one.
    shown_rank: int | None = None
    #: Facts of all ranks that were read from traces, and what these say of each other.
    ranks: dict[int, TraceFacts] = field(default_factory=dict)
    skew: Skew | None = None
    #: What was tried on it and measured.
    trial: Trial | None = None


def load(paths: list[str], step_ms: float | None = None) -> Material:
    """Read a recording's folder, a trial's, a saved Diagnosis, or one trace or several.

    Raises UsageError where none of these can be read.
    """
    first = Path(paths[0]).expanduser()
    if _is_recording(first):
        if len(paths) > 1:
            raise UsageError("report: one recording at a time; several paths are the traces of one run's ranks")
        if step_ms is not None:
            raise UsageError("report: --step-ms is for traces; a recording has timed its steps itself")
        return _of_recording(first)
    if len(paths) == 1 and is_trial(first):
        if step_ms is not None:
            raise UsageError("report: --step-ms is for traces; a trial has timed its steps itself")
        trial, folder = read_trial(first)
        found = _of_recording(folder)
        return replace(found, title=_title(first), trial=trial, diagnosis=with_measured(found.diagnosis, trial))
    if len(paths) == 1 and (saved := _saved(first)) is not None:
        return Material(diagnosis=saved, title=_title(first))
    return _of_traces(paths, step_ms)


def _is_recording(path: Path) -> bool:
    return path.is_dir() and ((path / HEADER).is_file() or any(path.glob("p*-*.jsonl")))


def _title(path: Path) -> str:
    return clean(path.absolute().name, ascii_only=False) or "recording"


def _saved(path: Path) -> Diagnosis | None:
    """Return the Diagnosis in a file that `--json` wrote, None for any other file."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        if path.is_file() and path.stat().st_size <= _DIAGNOSIS_MOST:
            data = path.read_bytes()
            if SCHEMA.encode() in data[:4096]:
                return from_json(data)
    return None


def _of_recording(folder: Path) -> Material:
    from underfed.diagnose.run import diagnose
    from underfed.diagnose.traced import read_window
    from underfed.recording.read import read

    recording = read(folder)
    # What the card said is what the report says; only where nothing was said it is worked out now.
    diagnosis = _saved(folder / "diagnosis.json") or diagnose(recording, read_window)
    log = _shown_process(recording)
    window = next((line for line in log.of(r.Trace) if line.state == "saved" and line.file), None) if log else None
    timeline, facts = _window(folder, window)
    return Material(
        diagnosis=diagnosis,
        title=_title(folder),
        recording=recording,
        log=log,
        shown_rank=log.process.rank if log is not None and len(_ranks(recording)) > 1 else None,
        window=window if timeline is not None else None,
        timeline=timeline,
        facts=facts,
    )


def rank_work(log: ProcessLog) -> tuple[float, float, float] | None:
    """Return step, own work and wait for data of a process in ms a step; None without steps.

    Its own work is the step without its backward pass and its collectives, in which a rank waits for the others.
    """
    from underfed.diagnose.gather import step_table

    table = step_table(log)
    if table is None:
        return None
    regions, step = table.regions(), table.mean("wall")
    return step, step - regions["backward"] - regions["comms"], regions["data"]


def _ranks(recording: Recording) -> dict[int, ProcessLog]:
    """Processes with steps by rank; of a rank that was started again, the last one."""
    found: dict[int, ProcessLog] = {}
    for log in recording.processes:
        rank, restart = log.process.rank, log.process.restart or 0
        if (
            rank is not None
            and log.step_rows()
            and (rank not in found or restart >= (found[rank].process.restart or 0))
        ):
            found[rank] = log
    return found


def _shown_process(recording: Recording) -> ProcessLog | None:
    """The rank that the others wait for, of which the verdict speaks too; else the process with most time in steps."""
    wall = r.STEP_COLUMNS.index("wall")
    ranks = {rank: work for rank, log in _ranks(recording).items() if (work := rank_work(log)) is not None}
    if len(ranks) > 1:
        return _ranks(recording)[max(ranks, key=lambda rank: ranks[rank][1])]

    def key(log: ProcessLog) -> tuple[int, int]:
        return sum(row[wall] for row in log.step_rows()) // 1_000_000_000, -(log.process.rank or 0)

    found = [log for log in recording.processes if log.step_rows()]
    return max(found, key=key, default=None)


def _window(folder: Path, window: r.Trace | None) -> tuple[Timeline | None, TraceFacts | None]:
    from underfed.timeline.facts import facts_of
    from underfed.trace.kineto import read

    # Names in a recording are not ours to trust: only a file in the folder itself, named as the agent names them.
    if window is None or not window.file or "/" in window.file or not window.file.startswith("trace-"):
        return None, None
    try:
        timeline = read(folder / window.file)
    except (UnderfedError, OSError):
        return None, None
    return timeline, facts_of(timeline, (window.begin_unix, window.end_unix))


def _of_traces(paths: list[str], step_ms: float | None) -> Material:
    from underfed.trace.late import ranks_of, skew_between
    from underfed.trace.many import read_many
    from underfed.trace.meaning import diagnosis_of
    from underfed.trace.places import places_of

    found, refused = read_many(places_of(paths))
    every = [facts for _, facts in found]
    diagnosis = diagnosis_of(every, [str(path) for path, _ in found], step_ms)
    diagnosis = msgspec.structs.replace(diagnosis, limits=[*diagnosis.limits, *refused])
    numbers, _ = ranks_of(every)
    skew, _, _ = skew_between(every, numbers)
    late = _late(every, numbers, skew)
    place = found[late][0]
    # Nsight's exports hold several processes: this one is so many behind the first of its file.
    within = late - next(at for at, (path, _) in enumerate(found) if path == place)
    title = _title(Path(str(found[0][0]))) if len(found) == 1 else f"{len(found)} traces"
    return Material(
        diagnosis=diagnosis,
        title=title,
        shown_rank=numbers[late] if len(found) > 1 else None,
        timeline=_timeline(place, within),
        facts=every[late],
        ranks=dict(zip(numbers, every, strict=True)),
        skew=skew,
    )


def _late(every: list[TraceFacts], numbers: list[int], skew: Skew | None) -> int:
    """Place of the rank that the others wait for: by their collectives, else the one that waits least itself."""
    if skew is not None and skew.late:
        worst = max((one for one in skew.ranks if one.rank in skew.late), key=lambda one: one.caused_ns)
        return numbers.index(worst.rank)

    def exposed(at: int) -> int:
        device = every[at].main
        return device.work.exposed_comms_ns if device is not None else 0

    return min(range(len(every)), key=exposed)


def _timeline(place: Path | str, within: int) -> Timeline:
    from underfed.trace.kineto import read
    from underfed.trace.nsight import is_nsight, read_nsight

    if isinstance(place, Path) and is_nsight(place):
        return read_nsight(place)[within]
    return read(place)

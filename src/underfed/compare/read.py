"""What a path of `underfed compare` stands for: a recording or several, a trial or one of its arms, a trace."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from underfed.compare import noise, work
from underfed.diagnosis import Diagnosis
from underfed.errors import UnderfedError, UsageError
from underfed.report.text import clean
from underfed.trial.records import TRIAL, Run, Trial

Kind = Literal["recording", "recordings", "trace", "trial"]

#: Between a trial's path and the name of one of its arms.
ARM = "#"
BASE = "baseline"
TRIAL_FILE = "trial.json"
#: A trial's record beyond this size is none of ours.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side as read. `values` are its runs, `steps` the steady steps behind them."""

    path: str
    kind: Kind
    diagnosis: Diagnosis
    values: list[noise.Value]
    steps: int
    facts: work.Facts
    marks: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)


def side(path: str) -> Side:
    """Read one side; raises UsageError where it is none of the things that can be compared, or holds no steps."""
    place, arm = _place(path)
    trial = place / TRIAL_FILE if place.is_dir() else place
    if _is_trial(trial):
        return _of_trial(path, trial, arm)
    if arm is not None:
        raise UsageError(f"compare: {clean(path)}: only a trial has arms, and this is none")
    if place.is_dir():
        folders = [place] if _is_recording(place) else [one for one in _below(place) if _is_recording(one)]
        if folders:
            return _of_recordings(path, "recording" if folders[0] is place else "recordings", folders)
    if not place.exists() and "://" not in path and not any(mark in path for mark in "*?["):
        raise UsageError(f"compare: {clean(path)}: no such file or folder")
    return _of_trace(path)


def _place(path: str) -> tuple[Path, str | None]:
    place = Path(path).expanduser()
    if ARM in path and not place.exists():
        before, _, arm = path.partition(ARM)
        return Path(before).expanduser(), arm
    return place, None


def _is_recording(folder: Path) -> bool:
    from underfed.recording.read import HEADER

    return (folder / HEADER).is_file() or any(folder.glob("p*-*.jsonl"))


def _below(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(one for one in folder.iterdir() if one.is_dir())
    return []


def _is_trial(file: Path) -> bool:
    with contextlib.suppress(OSError):
        if file.is_file():
            with file.open("rb") as opened:
                return TRIAL.encode() in opened.read(4096)
    return False


def _of_recordings(path: str, kind: Kind, folders: list[Path]) -> Side:
    from underfed.recording.read import read
    from underfed.trial.measured import Measured, measure

    seen: list[tuple[Path, Measured]] = []
    left: list[str] = []
    for folder in folders:
        try:
            found = measure(folder)
        except (UnderfedError, OSError) as error:
            left.append(f"left out: {clean(str(error))}")
            continue
        if found.blocks:
            seen.append((folder, found))
        elif len(folders) > 1:
            left.append(f"left out: {clean(folder.name)} holds no steps")
    if not seen:
        raise UsageError(f"compare: {clean(path)}: holds no steps; {left[0] if left else 'nothing was measured there'}")
    first = read(seen[0][0])
    marks = [mark for _, found in seen for mark in found.marks]
    limits = [*left]
    damaged = sum(log.damaged for log in first.processes)
    if damaged:
        limits.append(f"{damaged} lines are damaged and were left out")
    return Side(
        path=path,
        kind=kind,
        diagnosis=_meaning(seen[0][0]),
        values=[value for _, found in seen if (value := noise.value(found.blocks)) is not None],
        steps=sum(len(found.walls) for _, found in seen),
        facts=work.of_recording(first),
        marks=list(dict.fromkeys(marks)),
        limits=limits,
    )


def _meaning(folder: Path) -> Diagnosis:
    from underfed.diagnose.run import diagnose
    from underfed.diagnose.traced import read_window
    from underfed.recording.read import read

    return diagnose(read(folder), read_window)


def _of_trial(path: str, file: Path, arm: str | None) -> Side:
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"compare: {clean(path)}: too large for a trial")
        trial = msgspec.json.decode(file.read_bytes(), type=Trial)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"compare: {clean(path)}: cannot be read as a trial: {clean(str(error))}") from error
    name = arm or BASE
    whole = [run for run in trial.runs if run.step_ms is not None and (run.code == 0 or run.ended_early)]
    mine = [run for run in whole if run.arm == name]
    if not mine:
        known = ", ".join(dict.fromkeys(clean(run.arm) for run in whole)) or "none"
        raise UsageError(
            f"compare: {clean(path)}: has no runs of {clean(name)} that ended well; its arms with such runs: {known}"
        )
    folders = [folder for run in mine if (folder := _folder(file.parent, run)) is not None]
    if len(folders) == len(mine):
        return _of_recordings(path, "trial", folders)
    values = [value for run in mine if (value := noise.value([run.step_ms or 0.0])) is not None]
    if not values:
        raise UsageError(f"compare: {clean(path)}: the runs of {clean(name)} have no step time")
    from underfed.diagnosis import Step, Subject, Verdict

    steps = sorted(run.step_ms or 0.0 for run in mine)
    text = "the recordings of the trial's runs are gone: only their step times are left"
    return Side(
        path=path,
        kind="trial",
        diagnosis=Diagnosis(
            subject=Subject(kind="run", paths=[path], device=trial.device),
            verdict=Verdict(bound="unknown", confidence="low", text=text),
            step=Step(ms=steps[len(steps) // 2]),
        ),
        values=values,
        steps=sum(run.steps for run in mine),
        facts=work.Facts(known={"device": trial.device} if trial.device else {}),
        marks=list(dict.fromkeys(mark for run in mine for mark in run.marks)),
        limits=[text],
    )


def _folder(beside: Path, run: Run) -> Path | None:
    """The run's recording beside its trial; a name in a file is not ours to trust."""
    if not run.folder or "/" in run.folder or run.folder.startswith(".") or "\0" in run.folder:
        return None
    folder = beside / run.folder
    return folder if folder.is_dir() and _is_recording(folder) else None


def _of_trace(path: str) -> Side:
    from underfed.trace.many import read_many
    from underfed.trace.meaning import diagnosis_of
    from underfed.trace.places import places_of

    found, refused = read_many(places_of([path]))
    every = [facts for _, facts in found]
    diagnosis = diagnosis_of(every, [str(one) for one, _ in found])
    if not diagnosis.step.ms:
        raise UsageError(f"compare: {clean(path)}: no steps are marked in the trace, so there is no step to compare")
    return Side(
        path=path,
        kind="trace",
        diagnosis=diagnosis,
        values=[],
        steps=diagnosis.subject.steps or 0,
        facts=work.of_traces(every, diagnosis),
        limits=[clean(line) for line in [*diagnosis.limits, *refused]],
    )

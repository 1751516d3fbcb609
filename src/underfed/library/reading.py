"""`underfed.open`, `underfed.diagnose` and `underfed.read`: what was saved, as objects."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from underfed.diagnosis import Diagnosis
from underfed.errors import UsageError
from underfed.recording.read import HEADER, Recording

if TYPE_CHECKING:
    from underfed.library.watching import Watch

PathLike: TypeAlias = "str | os.PathLike[str]"


def place(path: PathLike) -> Path:
    """Return a path with `~` put in full; as it is where that names nobody."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def is_recording(path: PathLike) -> bool:
    """Tell a Recording's folder from a trace or a folder of traces."""
    folder = place(path)
    return (folder / HEADER).is_file() or (folder.is_dir() and any(folder.glob("p*-*.jsonl")))


def open(path: PathLike) -> Recording:
    """Read a Recording: the folder that `underfed run` printed, or that `watch(out=...)` was given.

    Raises UsageError where the folder is not a recording.
    """
    from underfed.recording.read import read as read_recording

    return read_recording(place(path))


def diagnose(recording: Recording | Watch | PathLike) -> Diagnosis:
    """Say what a Recording means; takes one that was opened, its folder, or a watch.

    Always returns a Diagnosis, `unknown` with the reason where nothing can be said. Raises UsageError where the folder
    is not a recording.
    """
    from underfed.diagnose.run import diagnose as diagnosed
    from underfed.diagnose.traced import read_window

    if isinstance(recording, str | os.PathLike):
        recording = open(recording)
    if not isinstance(recording, Recording):
        return recording.diagnosis
    return diagnosed(recording, read_window)


def read(*paths: PathLike, step_ms: float | None = None, processes: int = 1) -> Diagnosis:
    """Say what a saved trace of torch.profiler or Nsight means; several traces are the ranks of one run.

    Takes files, folders of them, patterns, and URLs of object stores. `step_ms` is the time of a step in ms, measured
    without a profiler; without it that is estimated, and the confidence is lower. More than one of `processes` needs
    `if __name__ == "__main__":` around the call in a script. Of a Recording's folder it returns what `diagnose` says.
    Raises UsageError where no trace can be read.
    """
    import msgspec

    from underfed.trace.many import read_many
    from underfed.trace.meaning import diagnosis_of
    from underfed.trace.places import places_of

    if not paths:
        raise UsageError("read: no trace; name a file that torch.profiler or nsys exported")
    if step_ms is not None and not (math.isfinite(step_ms) and step_ms > 0):
        raise UsageError(f"read: step_ms={step_ms}: give the time of a step in ms, above 0")
    names = [os.fspath(path) for path in paths]
    if processes < 1:
        raise UsageError(f"read: processes={processes}: give a number from 1 on")
    if len(names) == 1 and is_recording(names[0]):
        if step_ms is not None:
            raise UsageError("read: step_ms is for traces; a recording has timed its steps itself")
        return diagnose(names[0])
    found, refused = read_many(places_of(names), processes)
    diagnosis = diagnosis_of([one for _, one in found], [str(path) for path, _ in found], step_ms)
    changed: Diagnosis = msgspec.structs.replace(diagnosis, limits=[*diagnosis.limits, *refused])
    return changed

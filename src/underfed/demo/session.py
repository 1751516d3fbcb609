"""Runs the demo's script through `underfed run`, as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from underfed.demo.compare import Timing, timing_of
from underfed.diagnosis import Diagnosis, from_json
from underfed.errors import MeasurementError, UsageError
from underfed.report.page import say


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One run: what underfed says of it, and what the script says of itself."""

    diagnosis: Diagnosis
    timing: Timing


class EndedError(Exception):
    """The run ended with an exit code other than 0; `code` is what the shell would show."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def prepare(out: Path | None) -> Path:
    """Return a new or empty folder that holds the script; raises UsageError where there cannot be one."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="underfed-demo-")) if out is None else out.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"demo: --out {out}: the folder is not empty; name a new one")
        shutil.copyfile(Path(__file__).with_name("train.py"), folder / "train.py")
    except OSError as error:
        raise UsageError(f"demo: {error.filename}: {error.strerror}; name a folder with --out") from None
    return folder


def cpus() -> int:
    """Return the number of CPUs that PyTorch would count for its warning about workers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def watch(folder: Path, name: str, arguments: list[str]) -> Watched:
    """Run the script under `underfed run`, passing its output on; the recording goes to `name` in the folder.

    Raises EndedError where the run failed or was interrupted, MeasurementError where it left no verdict or no timing.
    """
    report = folder / f"{name}.json"
    watcher = [sys.executable, "-m", "underfed", "run", "--out", str(folder / name), "--json", str(report)]
    command = [*watcher, "--", sys.executable, "train.py", *arguments]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None  # noqa: S101 - by the line above
        while True:
            try:
                for line in process.stdout:
                    say(line)
                    lines.append(line)
                code = process.wait()
                break
            except KeyboardInterrupt:
                continue  # the terminal has sent it to the run as well, which ends in its own way
    if code != 0:
        raise EndedError(code if code > 0 else 128 - code)
    timing = timing_of("".join(lines))
    if timing is None:
        raise MeasurementError("demo: the script did not say how long its steps take; run it again")
    try:
        return Watched(diagnosis=from_json(report.read_bytes()), timing=timing)
    except (OSError, ValueError):
        raise MeasurementError(f"demo: the run left no verdict in {report}; run it again") from None

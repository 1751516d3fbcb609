"""One run of a command with switches set from outside, recorded, ended once it has what is needed, and read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from underfed.errors import MeasurementError, UnderfedError
from underfed.observe.launch_environment import inherited_environment, with_agent
from underfed.recording.place import write_header
from underfed.recording.read import read
from underfed.trial import process
from underfed.trial.measured import Measured, measure

#: A run has enough when its steady part spans this many seconds as well: with steps of 1 ms, 60 of them say nothing.
LEAST_S = 2.0
#: A change of what an epoch costs needs that many borders of epochs in the steady part.
LEAST_EPOCHS = 4


@dataclass(kw_only=True)
class Done:
    """One finished run of an arm."""

    arm: str
    folder: Path
    ended: process.Ended
    measured: Measured

    @property
    def crashed(self) -> bool:
        """Whether it ended in an error that is not our asking it to end."""
        return self.ended.code != 0 and not self.ended.asked and not self.measured.ended_early

    def words(self) -> str:
        """Return what it took, or how it ended, and what disturbed it, for a line of progress."""
        step = self.measured.step_ms
        what = f"exit code {self.ended.code}" if self.crashed else f"{step:.3g} ms a step" if step else "no steps"
        return "; ".join([what, *self.measured.marks])

    def insist(self, command: str, which: str, say: Callable[[str], None]) -> None:
        """Raise MeasurementError where it made no steps or failed, with its last lines said before."""
        if not self.crashed and self.measured.blocks:
            return
        shown = "".join(f"\n  | {line}" for line in self.tail(5))
        say(f"output of the command: {self.folder / process.OUTPUT}{shown}")
        how = f"ended with exit code {self.ended.code}"
        if not self.crashed:
            how = "made no steps that underfed could see; try it with: underfed run"
        raise MeasurementError(f"{command}: the command {which} {how}")

    def tail(self, lines: int = 15) -> list[str]:
        """Return the last lines of its output."""
        with contextlib.suppress(OSError):
            data = (self.folder / process.OUTPUT).read_bytes()[-8192:]
            return data.decode("utf-8", "replace").splitlines()[-lines:]
        return []


def run_once(
    command: Sequence[str],
    folder: Path,
    *,
    arm: str,
    switches: Sequence[tuple[str, str | None]] = (),
    window: str = "off",
    seed: int | None = None,
    enough: Callable[[], bool],
    most_s: float | None,
) -> Done:
    """Run the command in a new `folder`, with every switch set; `window` is the agent's option for a traced part."""
    folder.mkdir(mode=0o700)
    write_header(folder, command)
    options = {"trial": "1", "owner": str(os.getpid()), "window": window}
    if seed is not None:
        options["seed"] = str(seed)
    if switches:
        options["set"] = ";".join(f"{name}:{value}" for name, value in switches)
    threads = next((value for name, value in switches if name == "threads"), None)
    environment = inherited_environment()
    if threads is not None:
        before = environment.get(b"OMP_NUM_THREADS", b"").decode("ascii", "replace")
        options["threads"] = before if before.isdigit() else ""
        environment[b"OMP_NUM_THREADS"] = threads.encode()
    environment = with_agent(environment, folder, options)
    environment[b"UNDERFED_TRIAL"] = folder.name.encode()
    if seed is not None:
        environment.setdefault(b"PYTHONHASHSEED", str(seed % 2**32).encode())
    ended = process.run(command, environment, folder, enough=enough, most_s=most_s)
    return Done(arm=arm, folder=folder, ended=ended, measured=measure(folder))


class Enough:
    """Tells whether a run has what it needs; reads its recording now and then."""

    def __init__(self, folder: Path, steps: int, *, epochs: bool) -> None:
        self._folder, self._steps, self._epochs = folder, steps, epochs
        self._size = -1

    def __call__(self) -> bool:
        """Return True once no more is needed."""
        size = sum(path.stat().st_size for path in self._folder.glob("p*.jsonl"))
        if size == self._size:
            return False
        self._size = size
        try:
            found = measure(self._folder)
        except (UnderfedError, OSError):
            return False
        many = len(found.walls) >= self._steps and sum(found.walls) >= LEAST_S * 1e3
        if self._epochs and found.epochs <= LEAST_EPOCHS:
            return False
        return many and (found.steady or len(found.walls) >= 3 * self._steps)


def steps_so_far(folder: Path) -> int:
    """Return how many steps a run has made that its recording knows of."""
    try:
        return max((len(log.step_rows()) for log in read(folder).processes), default=0)
    except (UnderfedError, OSError):
        return 0


def slug(name: str) -> str:
    """Return a name as part of a file's name."""
    return "".join(char if char.isalnum() or char in "-_" else "-" for char in name)[:60]

"""One run of a trial: started in a session of its own, watched, ended early and politely, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from underfed.errors import UsageError
from underfed.observe.host.sampler import HostSampler

OUTPUT = "output.txt"
STOP = "stop"
LOOK_EVERY_S = 0.5

#: Seconds for the program's own ending after it was asked to end at a step, after SIGINT, and after SIGTERM.
PATIENCE_S = (30.0, 10.0, 5.0)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended: exit code as a shell shows it, and whether we asked for the end."""

    code: int
    asked: bool


def run(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    folder: Path,
    *,
    enough: Callable[[], bool],
    most_s: float | None,
) -> Ended:
    """Run the command to its end, or until `enough` says that no more is needed; `folder` is its recording.

    Output goes to `output.txt` in the folder. After `most_s` seconds it is ended as well. Whatever ends this function,
    KeyboardInterrupt included, no process of the run is left. Raises UsageError where it cannot be started.
    """
    with (folder / OUTPUT).open("wb") as output:
        try:
            child = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"{command[0]}: cannot be started: {reason.lower()}") from error
    host = HostSampler(child.pid, folder)
    asked = False
    begun = time.monotonic()
    seen: dict[int, psutil.Process] = {}
    try:
        while child.poll() is None:
            host.poll()
            _remember(child.pid, seen)
            if enough() or (most_s is not None and time.monotonic() - begun > most_s):
                asked = True
                _end(child, folder, seen)
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_EVERY_S)
    finally:
        host.sample()
        host.close()
        _leave_nothing(child, seen)
    code = child.returncode
    return Ended(code=code if code >= 0 else 128 - code, asked=asked)


def end_as_by_ctrl_c() -> None:
    """Raise KeyboardInterrupt for every signal that asks for an end, so that runs end and what they gave is kept."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def _remember(pid: int, seen: dict[int, psutil.Process]) -> None:
    """Note the processes below the command, so that they are found again when their parent has gone."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            seen.setdefault(process.pid, process)


def _end(child: subprocess.Popen[bytes], folder: Path, seen: dict[int, psutil.Process]) -> None:
    """Ask for the end at a step boundary, then by ever stronger signals to the run's own session."""
    with contextlib.suppress(OSError):
        (folder / STOP).touch()
    for patience, signo in zip(PATIENCE_S, _SIGNALS, strict=True):
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(patience)
            return
        _remember(child.pid, seen)
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signo)


def _leave_nothing(child: subprocess.Popen[bytes], seen: dict[int, psutil.Process]) -> None:
    """End what is still there of the run: the session, and those below it that started one of their own."""
    _remember(child.pid, seen)
    if child.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE_S[-1])
    with contextlib.suppress(OSError):  # the group exists as long as one of its members does
        os.killpg(child.pid, signal.SIGKILL)
    for process in seen.values():
        with contextlib.suppress(psutil.Error):
            process.kill()  # psutil compares the start time: never a process that took over the number
    child.wait()

"""Start the command and bring its status home: no pipe, no pseudo-terminal, no process group of its own.

The parent blocks all signals and takes them one by one, so that nothing ends it while the command runs and each signal
that reached it alone is passed on exactly once. Our own work runs in a thread beside that: it can neither delay a
signal nor change the status.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from underfed.errors import UnderfedError
from underfed.observe.launch_streams import printable, say
from underfed.observe.launch_witness import Witness

SI_KERNEL = 0x80
"""si_code of signals that the kernel made; for those of a terminal the whole foreground group has them already."""

OF_THE_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH, signal.SIGHUP})
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGCONT, signal.SIGTTIN, signal.SIGTTOU})
"""Left alone: the kernel stops and continues us and the command together."""

ENDING_WITHOUT_PROGRESS_S = 10.0
"""Our ending is cut when it used next to no processor time for this long: it waits for something that hangs."""

PROGRESS_CPU_S = 0.1


class CannotStartError(UnderfedError):
    """The command could not be started; the exit code is the one a shell gives."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(frozen=True, kw_only=True)
class Status:
    """How the command ended: its exit code, or 128 + n with `signal` = n where signal n ended it."""

    code: int
    signal: int | None = None


def run_command(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    *,
    tick: Callable[[], None],
    finish: Callable[[Status], None],
    interval_s: float = 0.25,
) -> Status:
    """Run `command` to its end and return its status.

    `tick` is called in a thread every `interval_s` seconds while the command runs, `finish` once after it; an error in
    either is one line on stderr. Raises CannotStartError where a shell would say 126 or 127. Signals stay blocked on
    return: the caller is expected to go on to `leave`.
    """
    original = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    watched = {s for s in signal.valid_signals() if s not in _left_alone()}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited "ignore" would lose the status
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = _spawn([os.fsencode(word) for word in command], environment, original)
    except CannotStartError:
        signal.pthread_sigmask(signal.SIG_SETMASK, original)
        raise
    work, witness = _Work(tick, finish, interval_s), Witness(environment)
    interrupts = 0
    while (status := _poll(child)) is None:
        info = signal.sigtimedwait(watched, 1.0)
        if info is None:
            continue
        interrupts += info.si_signo == signal.SIGINT
        if info.si_signo != signal.SIGCHLD and not _reached_the_command(info, child, witness):
            with contextlib.suppress(OSError):  # not ours to signal (sudo); not reaped yet, so the pid is still its own
                os.kill(child, info.si_signo)
    work.end(status)
    witness.stop()
    _wait_for_our_ending(work, watched, interrupts)
    return status


def leave(status: Status) -> NoReturn:
    """End this process as the command ended: same exit code, or death by the same signal without a second core file."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    if status.signal is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        # One byte: the only limit that also holds where core files go to a program (core_pattern with a pipe).
        resource.setrlimit(resource.RLIMIT_CORE, (1 if hard else 0, hard))
        if status.signal not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(status.signal, signal.SIG_DFL)
        os.kill(os.getpid(), status.signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {status.signal})
        time.sleep(0.1)  # still here only as process 1, which no signal of its own ends
    os._exit(status.code)


def _left_alone() -> set[signal.Signals]:
    """Signals that we neither block nor pass on: job control, and what was ignored when we started (`nohup`)."""
    ignored = {s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN}
    # Python itself ignores PIPE and XFSZ; a write of ours may raise them.
    return (ignored - {signal.SIGCHLD}) | JOB_CONTROL | {signal.SIGPIPE, signal.SIGXFSZ}


def _reached_the_command(info: signal.struct_siginfo, child: int, witness: Witness) -> bool:
    """Tell whether the command got this signal by itself, or is not meant by it."""
    if info.si_code != SI_KERNEL:
        return os.getpgid(child) == os.getpgrp() and witness.saw(info)
    if info.si_signo == signal.SIGHUP and os.getsid(0) == os.getpid():
        return False  # a terminal that goes away tells the session's leader alone
    return info.si_signo in OF_THE_TERMINAL or info.si_signo == signal.SIGXCPU  # our own processor limit


def _spawn(command: list[bytes], environment: Mapping[bytes, bytes], mask: set[signal.Signals | int]) -> int:
    # What Python set to "ignore" for itself; everything else keeps what we inherited.
    options = {"setsigmask": mask, "setsigdef": [signal.SIGPIPE, signal.SIGXFSZ]}
    name, path = os.fsdecode(command[0]), _find(command[0], environment)
    try:
        return os.posix_spawnp(command[0], command, environment, **options)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno == errno.ENOEXEC and path is not None and not _is_binary(path):  # a script without #!
            words = [b"/bin/sh", os.fsencode(path), *command[1:]]
            return os.posix_spawn(b"/bin/sh", words, environment, **options)  # type: ignore[arg-type]
        if isinstance(error, FileNotFoundError):
            there = path is not None and os.path.exists(path)  # noqa: PTH110 - Path.exists() raises
            text = f"{name}: the interpreter of its first line is missing" if there else f"{name}: command not found"
            raise CannotStartError(text, 127) from error
        if path is not None and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir() raises
            raise CannotStartError(f"{name}: is a directory", 126) from error
        raise CannotStartError(f"{name}: cannot be started: {(error.strerror or str(error)).lower()}", 126) from error
    except ValueError as error:  # a NUL byte inside a word
        raise CannotStartError(f"{printable(name)}: cannot be started: {error}", 126) from error


def _find(name: bytes, environment: Mapping[bytes, bytes]) -> Path | None:
    """Return the file that a lookup along PATH ends at."""
    if b"/" in name:
        return Path(os.fsdecode(name))
    for folder in environment.get(b"PATH", b"/bin:/usr/bin").split(b":"):
        path = Path(os.fsdecode(folder or b"."), os.fsdecode(name))
        if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
            return path
    return None


def _is_binary(path: Path) -> bool:
    """Tell a program of a foreign machine from a script: shells look for a NUL byte in the first line too."""
    try:
        with path.open("rb") as file:
            return b"\0" in file.read(128).split(b"\n", 1)[0]
    except OSError:
        return True


def _poll(child: int) -> Status | None:
    """Return the command's status once it ended; as process 1 also reap whatever else was left to us."""
    while os.getpid() == 1:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None or ended.si_pid == child:
            break
        os.waitpid(ended.si_pid, os.WNOHANG)
    pid, raw = os.waitpid(child, os.WNOHANG)
    if not pid:
        return None
    if os.WIFSIGNALED(raw):
        return Status(code=128 + os.WTERMSIG(raw), signal=os.WTERMSIG(raw))
    return Status(code=os.WEXITSTATUS(raw))


class _Work:
    """Our own work in a daemon thread: `tick` while the command runs, `finish` after it."""

    def __init__(self, tick: Callable[[], None], finish: Callable[[Status], None], interval_s: float) -> None:
        self._tick, self._finish, self._interval_s = tick, finish, interval_s
        self._ended, self._status, self._complained = threading.Event(), Status(code=0), False
        self.thread = threading.Thread(target=self._run, name="underfed", daemon=True)
        self.thread.start()

    def end(self, status: Status) -> None:
        self._status = status
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._guard(self._tick)
            self._ended.wait(self._interval_s)
        self._guard(lambda: self._finish(self._status))
        os.kill(os.getpid(), signal.SIGCHLD)  # wakes the main thread, which waits for signals

    def _guard(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:
            if not self._complained:
                self._complained = True
                say(f"a fault of underfed, not of your command: {type(error).__name__}: {error}")


def _wait_for_our_ending(work: _Work, watched: set[signal.Signals], interrupts: int) -> None:
    """Let `finish` print its card; a third Ctrl-C, a signal that asks to end, or a hang cuts it short."""
    enough = max(3, interrupts + 1) if interrupts else 1
    busy, since = time.process_time(), time.monotonic()
    while work.thread.is_alive():
        info = signal.sigtimedwait(watched, 1.0)
        signo = info.si_signo if info is not None else None
        interrupts += signo == signal.SIGINT
        if time.process_time() - busy > PROGRESS_CPU_S:
            busy, since = time.process_time(), time.monotonic()
        hangs = time.monotonic() - since > ENDING_WITHOUT_PROGRESS_S
        if hangs or interrupts >= enough or signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            say("the closing work was cut short; what was recorded is complete up to the command's end")
            return
        if signo == signal.SIGCHLD:
            work.thread.join(0.05)

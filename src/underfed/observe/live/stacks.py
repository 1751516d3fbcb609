"""Stacks of a process and all below it, by py-spy, which reads their memory and never stops them.

py-spy can also stop all threads for each sample. It never does so here (`--nonblocking`): with the many native threads
of torch that slows the program several times over, and a sampler that dies at the wrong moment leaves it stopped. The
price is a sample now and then that was read while the stack changed; those are found and left out.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

_PROFILE = re.compile(r'(?:Process (\d+) )?Thread (?:\((\d+)\)|(\S+))(?:: | )?"?(.*?)"?$', re.DOTALL)
_ERRORS = re.compile(rb"Samples: (\d+) Errors: (\d+)")
#: More than a tree of hundreds of threads gives in a minute; what is longer is not read.
_MOST_BYTES = 256 << 20
_PATIENCE = 20.0
_NOT_USER = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3(?:\.\d+)?/|/lib/pypy3")
_TYPED = ("<string>", "<stdin>", "<ipython")


class Frame(NamedTuple):
    """One Python frame: function, file and line."""

    name: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """File and line as text."""
        return f"{self.file}:{self.line}"

    @property
    def function(self) -> str:
        """The function's own name: newer Pythons put its class in front."""
        return self.name.rpartition(".")[2]

    @property
    def user(self) -> bool:
        """Whether the file is the user's own: neither the standard library's nor an installed package's."""
        return not _NOT_USER.search(self.file) and (not self.file.startswith("<") or self.file.startswith(_TYPED))


Stack = tuple[Frame, ...]


class ThreadStacks(NamedTuple):
    """All samples of one thread in their order, each stack with its innermost frame first. `torn` were left out."""

    pid: int | None
    tid: int | None
    name: str
    samples: list[Stack]
    torn: int


class Sampling(NamedTuple):
    """What py-spy gave: threads, its own CPU time in s, samples that failed; `reason` says why there is nothing."""

    threads: list[ThreadStacks]
    rate: int
    cpu_s: float
    errors: int
    reason: str | None


def find_pyspy() -> str | None:
    """Return the py-spy beside this Python, else the one on PATH."""
    beside = shutil.which("py-spy", path=sysconfig.get_path("scripts"))
    return beside or shutil.which("py-spy")


def parse(data: bytes) -> list[ThreadStacks]:
    """Read py-spy's speedscope format; what is not understood is left out, never an error."""
    try:
        document = json.loads(data)
        table = document["shared"]["frames"]
        profiles = document["profiles"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    if not isinstance(table, list) or not isinstance(profiles, list):
        return []
    frames = [_frame(entry) for entry in table]
    found = []
    for profile in profiles:
        name = profile.get("name") if isinstance(profile, dict) else None
        match = _PROFILE.match(name) if isinstance(name, str) else None
        rows = profile.get("samples") if match else None
        if match is None or not isinstance(rows, list):
            continue
        stacks = [stack for row in rows if (stack := _stack(row, frames))]
        kept = _whole(stacks)
        thread = match[2] or match[3]
        found.append(
            ThreadStacks(
                pid=int(match[1]) if match[1] else None,
                tid=int(thread) if thread.isascii() and thread.isdigit() else None,
                name=match[4],
                samples=kept,
                torn=len(stacks) - len(kept),
            )
        )
    return found


def _frame(entry: Any) -> Frame | None:
    """Return a frame; None for the entries that stand for processes."""
    if not isinstance(entry, dict):
        return None
    name, file, line = entry.get("name"), entry.get("file"), entry.get("line")
    if not isinstance(name, str) or not isinstance(file, str) or not file:
        return None
    return Frame(name, file, line if isinstance(line, int) else 0)


def _stack(row: Any, frames: list[Frame | None]) -> Stack:
    if not isinstance(row, list) or not all(isinstance(at, int) and 0 <= at < len(frames) for at in row):
        return ()
    return tuple(frame for at in reversed(row) if (frame := frames[at]) is not None)


def _whole(stacks: list[Stack]) -> list[Stack]:
    """Leave out stacks that do not start where the thread's others do: they were read while frames came and went."""
    roots = Counter((stack[-1].name, stack[-1].file) for stack in stacks)
    if not roots:
        return []
    usual, _ = roots.most_common(1)[0]
    return [stack for stack in stacks if (stack[-1].name, stack[-1].file) == usual]


def _die_with_us() -> Callable[[], None] | None:
    """Return what makes the kernel end a child together with us, however we end; None where it cannot be asked."""
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    death, kill = 1, int(signal.SIGKILL)  # PR_SET_PDEATHSIG; nothing is ever stopped, so a kill leaves nothing stopped

    def ask() -> None:
        prctl(death, kill, 0, 0, 0)

    return ask


class Sampler:
    """One py-spy at work. `finish` ends it and reads what it saw; nothing is ever written to a disk."""

    def __init__(self, pid: int, seconds: float, rate: int, *, gil: bool = False) -> None:
        self.rate = rate
        self.reason: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        program = find_pyspy()
        if program is None:
            self.reason = "py-spy is not installed: pip install 'underfed[attach]' (or pip install py-spy)"
            return
        self._out, self._err = os.memfd_create("underfed-stacks"), os.memfd_create("underfed-words")
        words = [program, "record", "--pid", str(pid), "--rate", str(rate), "--duration", str(int(seconds) + 5)]
        words += ["--format", "speedscope", "--output", f"/proc/self/fd/{self._out}", "--nonblocking"]
        words += ["--threads", "--subprocesses", "--full-filenames", "--gil" if gil else "--idle"]
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._err,
                pass_fds=(self._out,),
                preexec_fn=_die_with_us(),  # noqa: PLW1509  # one system call, looked up before the fork
                start_new_session=True,  # Ctrl-C at the terminal is ours; py-spy is told when to end
                env={"PATH": os.environ.get("PATH", "")},
            )
        except OSError as error:
            self.reason = f"py-spy cannot be started ({error.strerror})"
            os.close(self._out)
            os.close(self._err)

    def finish(self) -> Sampling:
        """End py-spy and return what it saw."""
        if self._process is None:
            return Sampling([], self.rate, 0.0, 0, self.reason)
        cpu_s = self._end(self._process)
        data, words = _content(self._out), _content(self._err)
        os.close(self._out)
        os.close(self._err)
        threads = parse(data)
        counted = _ERRORS.search(words)
        errors = int(counted[2]) if counted else 0
        return Sampling(threads, self.rate, cpu_s, errors, None if threads else _why(words))

    def _end(self, process: subprocess.Popen[bytes]) -> float:
        """Ask py-spy to write and end; return the CPU time that it took."""
        deadline = time.monotonic() + _PATIENCE
        stages = [(0.0, signal.SIGINT), (_PATIENCE / 2, signal.SIGTERM), (_PATIENCE, signal.SIGKILL)]
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_utime + usage.ru_stime
            passed = _PATIENCE - (deadline - time.monotonic())
            if stages and passed >= stages[0][0]:
                process.send_signal(stages.pop(0)[1])
            time.sleep(0.02)


def _content(descriptor: int) -> bytes:
    size = min(os.fstat(descriptor).st_size, _MOST_BYTES)
    parts, at = [], 0
    while at < size and (part := os.pread(descriptor, size - at, at)):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _why(words: bytes) -> str:
    said = words.decode("utf-8", "replace")
    if "ermission" in said or "EPERM" in said or "not permitted" in said:
        return "permission"
    if "No python processes found" in said or "Failed to find python" in said:
        return "py-spy found no Python that it can read"
    if "No such process" in said or "exited" in said:
        return "the process ended before a sample was taken"
    last = next((line for line in said.splitlines() if line.startswith("Error")), "")
    return f"py-spy saw nothing ({last.removeprefix('Error: ')[:120] or 'it did not say why'})"

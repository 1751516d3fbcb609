"""Tells a signal that was sent to the whole process group from one that was sent to us alone.

`kill %1`, a closing shell, `timeout` and Slurm signal the group: the command has such a signal already, and passing it
on would run its checkpoint handler twice. The kernel does not tell the receivers, so a small process in the same group
notes what it gets. Where it says nothing in time, the signal is passed on: twice is better than never.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Mapping

RECORD = struct.Struct("iid")
"""Signal number, sender's pid, time on the monotonic clock in seconds."""

PATIENCE_S = 0.05
"""How long a signal waits for the witness; the kernel delivers to a group within microseconds."""

SAME_S = 0.5
"""Deliveries of one signal by one sender within this time are taken as one."""

CODE = """# notes the signals that reach a whole process group
import os, struct, sys, time, _signal as s
for name in os.listdir('/proc/self/fd'):
    if int(name) > 2:
        try:
            os.close(int(name))
        except OSError:
            pass
everything, parent = s.valid_signals(), int(sys.argv[1])
os.write(1, struct.pack('iid', 0, 0, 0))
while os.getppid() == parent:
    got = s.sigtimedwait(everything, 1.0)
    if got is not None:
        os.write(1, struct.pack('iid', got.si_signo, got.si_pid, time.monotonic()))
"""


class Witness:
    """The small process; without it (no memory, no process left) every signal is passed on."""

    def __init__(self, environment: Mapping[bytes, bytes]) -> None:
        self._pid: int | None = None
        self._seen: list[tuple[int, int, float]] = []
        self._reader = -1
        with contextlib.suppress(OSError, ValueError):
            self._start(environment)

    def _start(self, environment: Mapping[bytes, bytes]) -> None:
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writer, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ]
        command = [sys.executable, "-I", "-S", "-c", CODE, str(os.getpid())]
        try:
            self._pid = os.posix_spawn(
                sys.executable, command, environment, file_actions=actions, setsigmask=signal.valid_signals()
            )
        finally:
            os.close(writer)

    def saw(self, info: signal.struct_siginfo) -> bool:
        """Tell whether the group got this signal too."""
        until = time.monotonic() + PATIENCE_S
        while self._pid is not None:
            self._read()
            for record in self._seen:
                if record[:2] == (info.si_signo, info.si_pid):
                    self._seen.remove(record)
                    return True
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return False
        return False

    def stop(self) -> None:
        """End the process; it has nothing to finish."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            self._pid = None
        if self._reader >= 0:
            os.close(self._reader)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._reader, 256 * RECORD.size)  # written whole: far below the size of an atomic write
            if not data:
                self._pid = None  # it died; its status is collected with that of any other child
            self._seen += RECORD.iter_unpack(data)
        self._seen = [record for record in self._seen if time.monotonic() - record[2] < SAME_S]

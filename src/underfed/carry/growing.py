"""Files that somebody is still writing."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable

#: A list of open files older than this is made anew, in seconds.
_KEEP = 1.0


class OpenFiles:
    """The files that other processes hold open for writing, as far as this user may see them (Linux)."""

    def __init__(self) -> None:
        self._made = float("-inf")
        self._writers: dict[tuple[int, int], int] = {}

    def writer(self, identity: tuple[int, int]) -> int | None:
        """Return the id of a process that holds this (device, inode) open for writing, or None."""
        if time.monotonic() - self._made > _KEEP:
            self._writers = dict(_open_for_writing())
            self._made = time.monotonic()
        return self._writers.get(identity)

    def again(self) -> None:
        """Forget what was seen."""
        self._made = float("-inf")


def _open_for_writing() -> Iterable[tuple[tuple[int, int], int]]:
    if sys.platform != "linux":
        return
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 (thousands of names: plain strings)
        if not name.isdigit() or int(name) == own:
            continue
        try:
            descriptors = os.listdir(f"/proc/{name}/fd")  # noqa: PTH208
        except OSError:
            continue  # gone, or another user's
        for descriptor in descriptors:
            try:
                state = os.stat(f"/proc/{name}/fd/{descriptor}")  # noqa: PTH116
                if stat.S_ISREG(state.st_mode) and _writes(name, descriptor):
                    yield (state.st_dev, state.st_ino), int(name)
            except OSError:  # noqa: PERF203 (each may vanish by itself)
                continue


def _writes(process: str, descriptor: str) -> bool:
    with open(f"/proc/{process}/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(b"flags:"):
                return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False

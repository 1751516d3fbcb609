"""Many files made durable at once."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from pathlib import Path
from types import TracebackType

from underfed.carry.hashing import forget

#: Below this many files each is synced by itself.
_FEW = 8
#: File systems that write everything out on syncfs and say so when that fails: ext4, xfs, btrfs, f2fs, tmpfs.
_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
#: Since Linux 5.8 syncfs reports what could not be written.
_REPORTS_SINCE = (5, 8)

#: As many files as are held open.
_MOST = 64


class Durably:
    """Syncs files of one file system: by one syncfs where that is as good as an fsync of each, else by those.

    It is to be opened before the files are written: syncfs reports errors since then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._folder).st_dev
        self._whole = _syncs_whole(self._folder)
        self._held: list[tuple[str, int]] = []
        self._closed: list[str] = []
        self._failed: list[tuple[str, OSError]] = []

    def add(self, name: str, fd: int) -> None:
        """Take over an open file."""
        self._held.append((name, fd))
        if len(self._held) == _FEW and self._whole and os.fstat(fd).st_dev == self._device:
            self._closed += [name for name, _ in self._held]
            self._close()
        elif len(self._held) == _MOST:
            self._sync_held()

    def sync(self) -> list[tuple[str, OSError]]:
        """Write all of them to the disk; returns the names of those that could not be, with the reason."""
        if self._closed and _libc().syncfs(self._folder) != 0:
            error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            self._failed += [(name, error) for name in self._closed]
        self._sync_held()
        failed, self._failed, self._closed = self._failed, [], []
        return failed

    def _sync_held(self) -> None:
        for _, fd in self._held:
            forget(fd)  # which also begins to write, so that the disk has all of them in hand before the first wait
        for name, fd in self._held:
            try:
                os.fsync(fd)
            except OSError as error:  # noqa: PERF203 (each file fails by itself)
                self._failed.append((name, error))
        self._close()

    def _close(self) -> None:
        for _, fd in self._held:
            os.close(fd)
        self._held.clear()

    def __enter__(self) -> Durably:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()
        os.close(self._folder)


def _syncs_whole(fd: int) -> bool:
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if sys.platform != "linux" or match is None or (int(match[1]), int(match[2])) < _REPORTS_SINCE:
        return False
    buffer = (ctypes.c_long * 64)()  # struct statfs is 120 bytes and begins with the kind of file system
    if _libc().fstatfs(fd, buffer) != 0:
        return False
    return int(buffer[0]) & 0xFFFFFFFF in _WHOLE


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

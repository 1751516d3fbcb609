"""Many files made durable at once."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from underfed.carry.direct import kind_of
from underfed.carry.hashing import forget

#: Below this many files each is synced by itself.
_FEW = 8
#: File systems that write everything out on syncfs and say so when that fails: ext4, xfs, btrfs, f2fs, tmpfs.
_WHOLE = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994})
#: Since Linux 5.8 syncfs reports what could not be written.
_REPORTS_SINCE = (5, 8)


class Durably:
    """Syncs files of one file system: by one syncfs where that is as good as an fsync of each, else by those.

    It is to be opened before the files are written: syncfs reports errors since then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._folder).st_dev
        self.whole = _reports() and kind_of(self._folder) in _WHOLE

    def sync(self, files: Sequence[tuple[str, int]]) -> list[tuple[str, OSError]]:
        """Write open files, given by name, to the disk; returns those that could not be, with the reason."""
        if len(files) < _FEW or not self.whole or os.fstat(files[0][1]).st_dev != self._device:
            return _sync_each(files)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(self._folder) == 0:
            return []
        self.whole = False  # an error is told once: what is written by now may have had it too
        error = OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return [(name, error) for name, _ in files]

    def __enter__(self) -> Durably:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._folder)


def files_at_once() -> int:
    """Return how many files each of two groups may hold open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(8, min(512, (limit if limit != resource.RLIM_INFINITY else 4096) // 2 - 64))


def _sync_each(files: Sequence[tuple[str, int]]) -> list[tuple[str, OSError]]:
    failed = []
    if len(files) > 1:
        for _, fd in files:
            forget(fd)  # which also begins to write, so that the disk has all of them in hand before the first wait
    for name, fd in files:
        try:
            os.fsync(fd)
        except OSError as error:  # noqa: PERF203 (each file fails by itself)
            failed.append((name, error))
    return failed


def _reports() -> bool:
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and match is not None and (int(match[1]), int(match[2])) >= _REPORTS_SINCE

"""Staged files made durable, proven, and given their names, many at a time, while others are still coming."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from underfed.carry.durable import Durably
from underfed.carry.far import FarError
from underfed.carry.hashing import renew
from underfed.carry.names import shown
from underfed.carry.preflight import PERMANENT

_THREADS = 2
#: As many files as are made durable at once, and the bytes after which no more are added.
_BATCH, _BATCH_BYTES = 1024, 4 << 20
#: How long small files are gathered, in seconds: the disk takes them together.
_GATHER = 0.25

Land = Callable[[str, int], None]


class Landing:
    """Takes the files of one transfer as they come; `land` proves one and names it, given its path and size.

    When it is called, no page of the file is cached that was not read from the disk.
    """

    def __init__(self, staging: Path, due: Iterable[str], mode: Callable[[str], int | None], land: Land) -> None:
        self.staging, self.due, self.mode, self.land = staging, frozenset(due), mode, land
        self.trouble: dict[str, str] = {}
        self._seen: set[str] = set()
        self._error: FarError | None = None
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(_THREADS)]
        for thread in self._threads:
            thread.start()

    def arrived(self, path: str) -> None:
        """A file is complete in the staging folder."""
        if path in self.due and path not in self._seen:
            self._seen.add(path)
            self._queue.put(path)

    def finish(self) -> None:
        """Wait until all that arrived is dealt with. Raises FarError when nothing more can be written."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        if self._error:
            raise self._error

    def _run(self) -> None:
        with Durably(self.staging) as durably:
            while (path := self._queue.get()) is not None:
                batch, size, last = [path], self._size(path), False
                until = time.monotonic() + _GATHER
                while len(batch) < _BATCH and size < _BATCH_BYTES:
                    try:
                        more = self._queue.get(timeout=max(0.0, until - time.monotonic()))
                    except queue.Empty:
                        break
                    if more is None:
                        last = True
                        break
                    batch.append(more)
                    size += self._size(more)
                if self._error is None:
                    self._batch(batch, durably)
                if last:
                    return

    def _size(self, path: str) -> int:
        try:
            return (self.staging / path).lstat().st_size
        except OSError:
            return 0

    def _batch(self, batch: list[str], durably: Durably) -> None:
        sizes = {}
        for path in batch:
            with self._guarded(path):
                fd = os.open(self.staging / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                mode, size = self.mode(path), os.fstat(fd).st_size
                if mode is not None:
                    with contextlib.suppress(OSError):  # a file system without modes
                        os.fchmod(fd, (mode & 0o777) | 0o400)
                durably.add(path, fd)
                sizes[path] = size
        for path, error in durably.sync():
            sizes.pop(path, None)
            with self._guarded(path):
                raise error
        renew(f"{self.staging}/{path}" for path in sizes)
        for path, size in sizes.items():
            if self._error is None:
                with self._guarded(path):
                    self.land(path, size)

    @contextlib.contextmanager
    def _guarded(self, path: str):  # type: ignore[no-untyped-def]
        try:
            yield
        except FarError as error:
            self._error = error
        except OSError as error:
            if error.errno in PERMANENT:
                self._error = FarError("local", f"{shown(path)}: {error.strerror}")
            else:
                self.trouble[path] = str(error.strerror)

"""Staged files made durable, proven, and given their names, many at a time, while others are still coming."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from underfed.carry.durable import Durably, files_at_once
from underfed.carry.far import FarError
from underfed.carry.names import shown
from underfed.carry.preflight import PERMANENT

_THREADS = 2
_FEW, _READERS = 8, 4
#: The bytes after which no more files are added to those that are made durable at once.
_BATCH_BYTES = 4 << 20
#: How long small files are gathered, in seconds: the disk takes them together.
_GATHER = 0.25

Land = Callable[[str, int], None]
"""Proves a file, given its path and a descriptor of it, and names it."""


class Landing:
    """Takes the files of one transfer as they come; `land` is called when a file is on the disk."""

    def __init__(self, staging: Path, due: Iterable[str], mode: Callable[[str], int | None], land: Land) -> None:
        self.staging, self.due, self.mode, self.land = staging, frozenset(due), mode, land
        self.trouble: dict[str, str] = {}
        self._most = files_at_once()
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
                while len(batch) < self._most and size < _BATCH_BYTES:
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
            return os.lstat(f"{self.staging}/{path}").st_size
        except OSError:
            return 0

    def _batch(self, batch: list[str], durably: Durably) -> None:
        opened: dict[str, int] = {}
        try:
            for path in batch:
                with self._guarded(path):
                    opened[path] = fd = os.open(f"{self.staging}/{path}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                    mode = self.mode(path)
                    if mode is not None:
                        with contextlib.suppress(OSError):  # a file system without modes
                            os.fchmod(fd, (mode & 0o777) | 0o400)
            failed = dict(durably.sync(list(opened.items())))
            for path, error in failed.items():
                with self._guarded(path):
                    raise error
            whole = [(path, fd) for path, fd in opened.items() if path not in failed]
            if len(whole) < _FEW:
                self._land(whole)
            else:  # each waits for the disk
                with ThreadPoolExecutor(_READERS) as pool:
                    list(pool.map(self._land, [whole[number::_READERS] for number in range(_READERS)]))
        finally:
            for fd in opened.values():
                os.close(fd)

    def _land(self, files: list[tuple[str, int]]) -> None:
        for path, fd in files:
            if self._error is None:
                with self._guarded(path):
                    self.land(path, fd)

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

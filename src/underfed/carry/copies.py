"""Files copied into one run's folder: under a temporary name, synced, renamed, read back from the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from underfed.carry.copying import copy_file
from underfed.carry.decide import READERS
from underfed.carry.direct import LARGE
from underfed.carry.durable import Durably, files_at_once
from underfed.carry.folders import make_folders
from underfed.carry.hashing import hash_fresh
from underfed.carry.names import INCOMING, shown
from underfed.carry.preflight import PERMANENT
from underfed.carry.reserve import Reserve
from underfed.carry.store import CarryError
from underfed.carry.take import Source

_TOGETHER_BYTES = 16 << 20
_FEW, _READERS = 8, 4
_TRANSIENT = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENOTCONN, errno.ECONNRESET, errno.EHOSTDOWN}
)

Came = str | CarryError
"""The BLAKE3 of a file, or why it did not come."""
_Failed = list[tuple[str, OSError]]


@dataclass(slots=True)
class _Copy:
    """A file on its way: an open descriptor and a temporary name, as long as it has them."""

    source: Source
    came: Came | None = None
    fd: int = -1
    temporary: str = ""

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.temporary:
            with contextlib.suppress(OSError):
                os.unlink(self.temporary)  # noqa: PTH108 (many)
            self.temporary = ""


class Copies:
    """Copies files into a folder; `touched` are the folders whose names have changed, `named` the files that came.

    Temporary names come from `reserve`, as long as `near` holds: files can be moved from there into the folder.
    """

    def __init__(self, folder: Path, reserve: Reserve | None, *, near: bool) -> None:
        self.folder, self.reserve, self.near = folder, reserve, near
        self.incoming = folder / INCOMING
        self.touched: set[Path] = set()
        self.named: set[str] = set()
        self._made: set[str] = set()
        self._count = 0
        self._lock = threading.Lock()

    def all(self, sources: Sequence[Source]) -> Generator[tuple[Source, Came], None, None]:
        """Give, for each, the BLAKE3 that source and copy have, or why it is not there; once more where they differ."""
        waiting = list(sources)
        for last in (False, True):
            again = []
            with contextlib.closing(self._once(waiting)) as done:
                for source, came in done:
                    if came is not None:
                        yield source, came
                    elif not last:
                        again.append(source)
                    else:
                        (self.folder / source.path).unlink(missing_ok=True)
                        yield source, CarryError(f"{shown(source.path)}: copied twice, and other bytes were read back")
            waiting = again

    def _once(self, sources: list[Source]) -> Generator[tuple[Source, Came | None], None, None]:
        """Copy all; None is said of a file of which other bytes were read back."""
        small = [source for source in sources if source.size <= LARGE]
        large = [source for source in sources if source.size > LARGE]
        if not large:
            yield from self._by_groups(small)
            return
        with ThreadPoolExecutor(READERS) as pool:
            try:
                waiting = [pool.submit(self._group, [source]) for source in large]
                with contextlib.closing(self._by_groups(small)) as done:
                    yield from done
                for group in as_completed(waiting):
                    yield from group.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _group(self, group: list[Source]) -> list[tuple[Source, Came | None]]:
        with contextlib.closing(self._pipeline([group])) as done:
            return list(done)

    def _by_groups(self, sources: list[Source]) -> Generator[tuple[Source, Came | None], None, None]:
        """Copy small files: in threads where each is waited for, else one group after the other."""
        if not sources:
            return
        groups = list(_groups(sources))
        with Durably(self.folder) as durably:
            whole = durably.whole
        if whole or len(groups) == 1:
            yield from self._pipeline(groups)
            return
        with ThreadPoolExecutor(READERS) as pool:
            try:
                for done in as_completed([pool.submit(self._group, group) for group in groups]):
                    yield from done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _pipeline(self, groups: list[list[Source]]) -> Generator[tuple[Source, Came | None], None, None]:
        """Copy a group while the disk takes the one before."""
        try:
            durably = Durably(self.folder)
        except OSError as error:
            yield from ((source, as_carry_error(source.path, error)) for group in groups for source in group)
            return
        with durably, ThreadPoolExecutor(1) as disk:
            before: tuple[list[_Copy], Future[_Failed]] | None = None
            for group in groups:
                copies = self._write(group)
                syncing = disk.submit(durably.sync, [(c.source.path, c.fd) for c in copies if isinstance(c.came, str)])
                try:
                    if before:
                        yield from self._finish(*before)
                except BaseException:
                    _drop(copies, syncing)
                    raise
                before = copies, syncing
            if before:
                yield from self._finish(*before)

    def _write(self, sources: list[Source]) -> list[_Copy]:
        """Copy to temporary names; the first permanent error ends it, and what comes after is not there."""
        copies = []
        for source in sources:
            copy = _Copy(source)
            copies.append(copy)
            try:
                mode = self._open(copy)
                copy.came = copy_file(source, copy.fd, mode)
            except CarryError as error:
                copy.came = error
            except OSError as error:
                copy.came = as_carry_error(source.path, error)
                if copy.came.permanent:
                    break
            except BaseException:
                for left in copies:
                    left.close()
                raise
        return copies

    def _finish(self, copies: list[_Copy], syncing: Future[_Failed]) -> list[tuple[Source, Came | None]]:
        """Give names to what is durable, and read it back."""
        try:
            failed = dict(syncing.result())
            for copy in copies:
                if isinstance(copy.came, str):
                    error = failed.get(copy.source.path)
                    if error:
                        copy.came = as_carry_error(copy.source.path, error)
                    else:
                        self._name(copy)
            whole = [copy for copy in copies if isinstance(copy.came, str)]
            self._read_back(whole)
            return [(copy.source, copy.came) for copy in copies]
        finally:
            _drop(copies, syncing)

    def _name(self, copy: _Copy) -> None:
        path = copy.source.path
        inner = path.rpartition("/")[0]
        try:
            if inner not in self._made:
                with self._lock:
                    self.touched.update(make_folders(self.folder, inner))
                    self.touched.add(self.folder / inner)
                    self._made.add(inner)
            os.rename(copy.temporary, f"{self.folder}/{path}")  # noqa: PTH104 (many)
        except OSError as error:
            copy.came = self._not_named(copy, error)
            return
        copy.temporary = ""
        self.named.add(path)

    def _not_named(self, copy: _Copy, error: OSError) -> CarryError:
        """Files may not always move between folders of one file system (project quotas, bind mounts): copy inside the
        run then, this file and those beside it that were written before that was known.
        """
        path = copy.source.path
        if error.errno in {errno.EXDEV, errno.ENOENT} and Path(copy.temporary).parent != self.incoming:
            self.near = False
            return CarryError(f"{shown(path)}: {error.strerror}", transient=True)
        return as_carry_error(path, error)

    def _read_back(self, copies: list[_Copy]) -> None:
        """Read files from the disk, several at once where they are many, and note which are other than they were."""
        if len(copies) < _FEW:
            _look_back(copies)
            return
        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(_look_back, [copies[number::_READERS] for number in range(_READERS)]))

    def _open(self, copy: _Copy) -> int:
        """Open a temporary file, and return its mode. Where locks hold on one host only, another may have cleared ours
        away as left over.
        """
        copy.temporary, mode = self._temporary()
        try:
            copy.fd = os.open(copy.temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self.near = False
            copy.temporary, mode = self._temporary()
            copy.fd = os.open(copy.temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        return mode

    def _temporary(self) -> tuple[str, int]:
        """Return the path and the mode of an empty file on the run's own file system."""
        if self.reserve and self.near and (reserved := self.reserve.take()):
            return reserved, self.reserve.mode
        path = self.free_name()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return str(path), 0o600

    def free_name(self) -> Path:
        """Return a name that nothing has."""
        with self._lock:
            self.incoming.mkdir(exist_ok=True)
            self._count += 1
            return self.incoming / f"{os.getpid()}-{self._count}"


def _look_back(copies: list[_Copy]) -> None:
    for copy in copies:
        size = copy.source.size
        try:
            if hash_fresh(copy.fd, size) != (copy.came, size):
                copy.came = None
        except OSError as error:
            copy.came = as_carry_error(copy.source.path, error)


def _drop(copies: list[_Copy], syncing: Future[_Failed]) -> None:
    syncing.exception()  # what is being synced may not be closed
    for copy in copies:
        copy.close()


def _groups(sources: list[Source]) -> Iterator[list[Source]]:
    """Put files together that are written to the disk with one wait."""
    most = files_at_once()
    group: list[Source] = []
    room = _TOGETHER_BYTES
    for source in sources:
        if group and (source.size > room or len(group) == most):
            yield group
            group, room = [], _TOGETHER_BYTES
        group.append(source)
        room -= source.size
    if group:
        yield group


def as_carry_error(path: str, error: OSError) -> CarryError:
    """Return an OSError as one of ours, with a hint for the ones that have one."""
    hint = ""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = " (bytes, inodes or quota: see df -h, df -i, quota)"
    return CarryError(
        f"{shown(path)}: {error.strerror}{hint}",
        permanent=error.errno in PERMANENT,
        transient=error.errno in _TRANSIENT,
    )

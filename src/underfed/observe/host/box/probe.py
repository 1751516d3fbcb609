"""A bounded probe of a folder's storage. All it writes is gone when it returns; the large file never has a name."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from underfed.observe.host.box.records import Probe

_BLOCK = 1 << 20
_BLOCKS = 8
_SMALL = 4096
_SMALL_FILES = 32

#: A slow store is known as slow long before the last byte.
_SECONDS = 2.0

#: File systems that live in memory: reading back can only measure that.
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})


def probe(folder: Path, fs: str | None) -> Probe | str:
    """Write, flush and read a few MB and some small files; returns the reason as text where that cannot be done."""
    try:
        written, write_s, read_s, cached = _stream(folder, fs)
    except OSError as error:
        return _reason(error)
    try:
        files, small_write_s, small_read_s = _small(folder)
    except OSError:
        files, small_write_s, small_read_s = 0, 0.0, 0.0
    return Probe(
        bytes=written,
        write_mb_s=written / write_s / 1e6 if write_s else None,
        read_mb_s=written / read_s / 1e6 if read_s else None,
        read_cached=cached,
        small_files=files,
        small_write_ms=small_write_s / files * 1e3 if files else None,
        small_read_ms=small_read_s / files * 1e3 if files else None,
    )


def _reason(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"writing fails: {os.strerror(error.errno).lower()}"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return "not writable"
    return f"writing fails: {(error.strerror or type(error).__name__).lower()}"


def _stream(folder: Path, fs: str | None) -> tuple[int, float, float, bool | None]:
    """Return the bytes written, the seconds to write and fsync them, those to read them, and whether from memory."""
    # random bytes: file systems that compress or find duplicates would store zeros in no time
    block = os.urandom(_BLOCK)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        descriptor = file.fileno()
        begin = time.perf_counter()
        written = 0
        while written < _BLOCKS * _BLOCK and time.perf_counter() - begin < _SECONDS:
            written += os.write(descriptor, block)
        os.fsync(descriptor)
        write_s = time.perf_counter() - begin
        dropped = _drop_cache(descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        begin = time.perf_counter()
        while os.read(descriptor, _BLOCK) and time.perf_counter() - begin < _SECONDS:
            pass
        read_s = time.perf_counter() - begin
        at = os.lseek(descriptor, 0, os.SEEK_CUR)
    if at < written:
        read_s *= written / at if at else 0.0
    return written, write_s, read_s, True if fs in _IN_MEMORY or not dropped else None


def _drop_cache(descriptor: int) -> bool:
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except (AttributeError, OSError):
        return False
    return True


def _small(folder: Path) -> tuple[int, float, float]:
    """Return the number of small files, and the seconds to write and fsync all of them and to open and read them."""
    content = os.urandom(_SMALL)
    with tempfile.TemporaryDirectory(prefix=".underfed-", dir=folder) as inside:
        names = [f"{inside}/{number}" for number in range(_SMALL_FILES)]
        written = _each(names, lambda name: _write_small(name, content))
        read = _each(names[: written[0]], _read_small)
    return written[0], written[1], read[1] * written[0] / read[0] if read[0] else 0.0


def _each(names: list[str], what: Callable[[str], None]) -> tuple[int, float]:
    """Do something with each name until the time is up; return how many were done and the seconds they took."""
    begin = time.perf_counter()
    for done, name in enumerate(names):
        what(name)
        if time.perf_counter() - begin > _SECONDS:
            return done + 1, time.perf_counter() - begin
    return len(names), time.perf_counter() - begin


def _write_small(name: str, content: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
        _drop_cache(descriptor)
    finally:
        os.close(descriptor)


def _read_small(name: str) -> None:
    descriptor = os.open(name, os.O_RDONLY)
    try:
        os.read(descriptor, _SMALL)
    finally:
        os.close(descriptor)

"""One file's bytes into another, hashed on the way."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from underfed.carry.folders import sync_folder
from underfed.carry.hashing import blocks, new_hasher
from underfed.carry.names import shown
from underfed.carry.store import CarryError
from underfed.carry.take import Source


def copy_file(source: Source, out: int) -> str:
    """Copy a file into an empty open one, with its mode and time; return the source's BLAKE3.

    Holes stay holes. Raises CarryError if the file is not what was listed or changes on the way, OSError otherwise.
    """
    fd = os.open(source.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_unchanged(source, os.fstat(fd))
        hasher = new_hasher()
        length = 0
        sparse = source.allocated < source.size
        for block in blocks(fd, source.size):
            hasher.update(block)
            if sparse and not any_set(block):
                os.lseek(out, len(block), os.SEEK_CUR)
            else:
                write_all(out, block)
            length += len(block)
        check_unchanged(source, os.fstat(fd))
        if length != source.size:
            raise CarryError(f"{shown(source.path)}: still growing", changed=True)
        if sparse:
            os.ftruncate(out, length)
        with contextlib.suppress(OSError):
            os.fchmod(out, stat.S_IMODE(source.mode) & 0o777)
        with contextlib.suppress(OSError):
            os.utime(out, ns=(source.mtime_ns, source.mtime_ns))
        return hasher.hexdigest()
    finally:
        os.close(fd)


def check_unchanged(source: Source, state: os.stat_result) -> None:
    """Raise CarryError unless a file looks as it did when it was listed."""
    if (state.st_dev, state.st_ino) != source.identity or state.st_mtime_ns != source.mtime_ns:
        raise CarryError(f"{shown(source.path)}: changed while it was copied", changed=True)
    if state.st_size != source.size:
        raise CarryError(f"{shown(source.path)}: still growing", changed=True)


_ZEROS = bytes(4 << 20)


def any_set(block: memoryview) -> bool:
    """Say whether a block of up to 4 MiB has a byte other than zero."""
    return bytes(block) != _ZEROS[: len(block)]


def write_all(fd: int, block: memoryview) -> None:
    """Write a whole block."""
    while block:
        block = block[os.write(fd, block) :]


def write_durably(path: Path, data: bytes, temporary: Path) -> None:
    """Write a small file so that it is there whole or not at all."""
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, memoryview(data))
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path)
    sync_folder(path.parent)
    if not same_bytes(path, data):
        raise OSError(errno.EIO, "other bytes were read back than were written")


def same_bytes(path: Path, data: bytes) -> bool:
    """Say whether a file holds these bytes."""
    try:
        return path.read_bytes() == data
    except OSError:
        return False

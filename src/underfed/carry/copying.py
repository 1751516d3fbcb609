"""One file's bytes into another, hashed on the way."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from underfed.carry.direct import LARGE, Writer, allocate, cache_again, write_past_cache
from underfed.carry.folders import sync_folder
from underfed.carry.hashing import CHUNK, Hasher, blocks, hash_bytes, new_hasher
from underfed.carry.names import shown
from underfed.carry.store import CarryError
from underfed.carry.take import Source

_SMALL = 1 << 20  # files below this, in bytes, are read at once


def copy_file(source: Source, out: int, mode: int) -> str:
    """Copy a file into an empty open one, of this mode, with its mode and time; return the source's BLAKE3.

    Holes stay holes. A large file goes past the system's cache where `out` can. Raises CarryError if the file is not
    what was listed or changes on the way, OSError otherwise.
    """
    fd = os.open(source.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_unchanged(source, os.fstat(fd))
        if source.mode & 0o777 != mode:
            with contextlib.suppress(OSError):
                os.fchmod(out, source.mode & 0o777)
        if source.size > LARGE and write_past_cache(out):
            try:
                digest, length = _copy_direct(source, fd, out)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                cache_again(out)  # a disk with wishes of its own
                os.ftruncate(out, 0)
                os.lseek(fd, 0, os.SEEK_SET)
                digest, length = _copy_blocks(source, fd, out)
        elif source.size < _SMALL and source.allocated >= source.size:
            digest, length = _copy_small(source, fd, out)
        else:
            digest, length = _copy_blocks(source, fd, out)
        check_unchanged(source, os.fstat(fd))
        if length != source.size:
            raise CarryError(f"{shown(source.path)}: still growing", changed=True)
        with contextlib.suppress(OSError):  # of a file system without times
            os.utime(out, ns=(source.mtime_ns, source.mtime_ns))
        return digest
    finally:
        os.close(fd)


def _copy_small(source: Source, fd: int, out: int) -> tuple[str, int]:
    data = os.read(fd, source.size + 1)
    while len(data) < source.size and (more := os.read(fd, source.size + 1 - len(data))):
        data += more
    if os.write(out, data) != len(data):
        os.lseek(out, 0, os.SEEK_SET)
        write_all(out, memoryview(data))
    return hash_bytes(data), len(data)


def _copy_blocks(source: Source, fd: int, out: int) -> tuple[str, int]:
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
    if sparse:
        os.ftruncate(out, length)
    return hasher.hexdigest(), length


def _copy_direct(source: Source, fd: int, out: int) -> tuple[str, int]:
    hasher = new_hasher()
    length = 0
    sparse = source.allocated < source.size
    if not sparse:
        allocate(out, source.size)  # in one piece, whatever is written beside it
    writer = Writer(out, source.size)
    try:
        while count := _fill(fd, block := writer.buffer(), hasher):
            writer.put(count, hole=sparse and not any_set(block[:count]))
            length += count
            if length > source.size:
                break
        writer.end()
    finally:
        writer.close()
    return hasher.hexdigest(), length


def _fill(fd: int, block: memoryview, hasher: Hasher) -> int:
    """Fill a block from a file and hash it in pieces that fit a core's own cache; short at the file's end only."""
    count = 0
    while count < len(block) and (more := os.readv(fd, [block[count : count + CHUNK]])):
        hasher.update(block[count : count + more])
        count += more
    return count


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

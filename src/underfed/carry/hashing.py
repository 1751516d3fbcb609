"""BLAKE3 of what really lies on the disk."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from blake3 import blake3

from underfed.carry.direct import SMALL, blocks_ahead, cache_again, past_cache, read_small

#: Bytes read at once: what fits a core's own cache is hashed and written again without a way through memory.
CHUNK = 1 << 20
_SMALL = 1 << 20  # what is asked for ahead of reading a small file


class Hasher(Protocol):
    """What hashlib's objects and blake3's have in common."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Add bytes."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far, in hex."""


def new_hasher(algorithm: str = "blake3") -> Hasher:
    """Return a hasher by name (`blake3`, `sha256`).

    In one thread: that is faster than disks, and BLAKE3's own threads spin between blocks, which costs the copying of
    other files more than it gains.
    """
    if algorithm == "blake3":
        made: Hasher = blake3(max_threads=1)
        return made
    return hashlib.new(algorithm)


def hash_bytes(data: bytes | memoryview) -> str:
    """Return the BLAKE3 of some bytes, in hex."""
    return str(blake3(data).hexdigest())


def hash_stream(stream: IO[bytes], algorithm: str = "blake3") -> tuple[str, int]:
    """Return hash and length of what a stream gives."""
    hasher = new_hasher(algorithm)
    length = 0
    while block := stream.read(CHUNK):
        hasher.update(block)
        length += len(block)
    return hasher.hexdigest(), length


def hash_file(path: Path | str, algorithm: str = "blake3", *, fresh: bool = False) -> tuple[str, int]:
    """Return hash and length of a file.

    fresh: what is hashed comes from the disk or the server and not from the system's cache, see `hash_fresh`. A network
    file system also asks its server for the file's state again when the file is opened.

    Raises OSError; a link is not followed in the last part of the name (ELOOP), and only a regular file is read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(fd)
        if state.st_mode & 0o170000 != 0o100000:
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if fresh:
            return hash_fresh(fd, state.st_size, algorithm)
        return _hash_open(fd, state.st_size, algorithm)
    finally:
        os.close(fd)


def hash_fresh(fd: int, size: int, algorithm: str = "blake3") -> tuple[str, int]:
    """Return hash and length of an open file of about `size` bytes, whose data is on the disk, as the disk has it.

    It is read past the system's cache; where that cannot be, its cached pages are let go of first. Raises OSError.
    """
    if past_cache(fd):
        try:
            return _hash_past_cache(fd, size, algorithm)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            cache_again(fd)  # a file system that cannot, or a disk with wishes of its own
    forget(fd)
    return _hash_open(fd, size, algorithm)


def _hash_past_cache(fd: int, size: int, algorithm: str) -> tuple[str, int]:
    if size <= SMALL:
        data = read_small(fd, size)
        if len(data) == size:
            return _hash_of(data, algorithm), size
    hasher = new_hasher(algorithm)
    length = 0
    for block in blocks_ahead(fd, size):
        hasher.update(block)
        length += len(block)
    return hasher.hexdigest(), max(length, os.fstat(fd).st_size)


def _hash_of(data: bytes | memoryview, algorithm: str) -> str:
    return hash_bytes(data) if algorithm == "blake3" else hashlib.new(algorithm, data).hexdigest()


def _hash_open(fd: int, size: int, algorithm: str) -> tuple[str, int]:
    """Hash from the beginning of an open file; a small one is read at once."""
    if size < _SMALL:
        data = os.pread(fd, size + 1, 0)
        if len(data) == size:
            return _hash_of(data, algorithm), size
    os.lseek(fd, 0, os.SEEK_SET)
    hasher = new_hasher(algorithm)
    length = 0
    for block in blocks(fd, size):
        hasher.update(block)
        length += len(block)
    return hasher.hexdigest(), length


def blocks(fd: int, size: int) -> Iterator[memoryview]:
    """Give the bytes of an open file from where it stands, in one buffer that is used again for each block."""
    buffer = bytearray(max(1, min(CHUNK, size + 1)))
    view = memoryview(buffer)
    while count := os.readv(fd, [buffer]):
        yield view[:count]


def forget(fd: int) -> None:
    """Ask the system to drop its cached pages of a file; where it cannot, nothing happens.

    Pages that are not on the disk yet stay, and begin to be written.
    """
    if hasattr(os, "posix_fadvise"):
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ESPIPE}:
                raise

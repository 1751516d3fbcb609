"""BLAKE3 of what really lies on the disk."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

from blake3 import blake3

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


def hash_bytes(data: bytes) -> str:
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

    fresh: let go of the system's cached pages first, so that what is hashed comes from the disk or the server and not
    from the pages that were just written. Pages that another process holds dirty or mapped stay where they are. A
    network file system also asks its server for the file's state again when the file is opened.

    Raises OSError; a link is not followed in the last part of the name (ELOOP), and only a regular file is read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(fd)
        if state.st_mode & 0o170000 != 0o100000:
            raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
        if fresh:
            forget(fd)
        hasher = new_hasher(algorithm)
        length = 0
        for block in blocks(fd, state.st_size):
            hasher.update(block)
            length += len(block)
        return hasher.hexdigest(), length
    finally:
        os.close(fd)


def renew(paths: Iterable[str]) -> None:
    """Let go of the cached pages of files and have them read from the disk again, all at once, for `hash_file` to read.

    What cannot be opened is passed by: `hash_file` says why.
    """
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            forget(fd)
            if hasattr(os, "posix_fadvise"):
                with contextlib.suppress(OSError):
                    os.posix_fadvise(fd, 0, _SMALL, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)


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

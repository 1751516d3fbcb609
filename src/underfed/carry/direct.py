"""Large files past the system's cache: blocks go to the disk, and come from it, while others are hashed.

A file that is read back is then read from the disk for certain, and nobody's cached pages are driven out by ours.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

#: Files larger than this, in bytes, are worth it.
LARGE = 4 << 20
#: Bytes of one block, and blocks of a file that are under way at once.
_BLOCK, _AHEAD = 2 << 20, 4
_THREADS = 6
#: Local disks by the number that statfs gives for their file system: ext4, xfs, btrfs, f2fs. Others cache on a server.
_DISKS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010})
_ALIGNED = 4096
_DIRECT = getattr(os, "O_DIRECT", 0)


_NO_ALLOCATING = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


def kind_of(fd: int) -> int:
    """Return the number that Linux gives the kind of file system that an open file is on; 0 where it is not known."""
    if sys.platform != "linux":
        return 0
    buffer = (ctypes.c_long * 64)()  # struct statfs is 120 bytes and begins with the kind
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, buffer) != 0:
        return 0
    return int(buffer[0]) & 0xFFFFFFFF


def allocate(fd: int, total: int) -> bool:
    """Give an open file its bytes on the disk in advance; False where that is not possible. Raises OSError.

    By Linux's own fallocate: the C library's posix_fallocate writes a byte a block where that is missing.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, "fallocate64" if hasattr(libc, "fallocate64") else "fallocate")
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(fd, 0, 0, total) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_ALLOCATING:
        return False
    raise OSError(number, os.strerror(number))


def read_past_cache(fd: int) -> bool:
    """Have an open file read from, and written to, the disk itself from now on; False where that is not possible."""
    if not _DIRECT or kind_of(fd) not in _DISKS:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | _DIRECT)
        os.preadv(fd, [mmap.mmap(-1, _ALIGNED)], 0)
    except OSError:
        cache_again(fd)
        return False
    return True


def cache_again(fd: int) -> None:
    """Undo it."""
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~_DIRECT)


def blocks_ahead(fd: int, size: int) -> Iterator[memoryview]:
    """Give the bytes of a file that is read past the cache, some blocks being read ahead; each is good until the next.

    It ends where the file does, or at `size` bytes. Raises OSError.
    """
    waiting: deque[tuple[mmap.mmap, Future[int]]] = deque()
    start = 0
    try:
        for _ in range(_AHEAD):
            if start < size:
                buffer = mmap.mmap(-1, _BLOCK)
                waiting.append((buffer, _threads().submit(os.preadv, fd, [buffer], start)))
                start += _BLOCK
        at = 0
        while waiting:
            buffer, reading = waiting.popleft()
            count = reading.result()
            yield memoryview(buffer)[:count]
            at += count
            if count < _BLOCK and at < size:
                return  # cut short meanwhile
            if start < size:
                waiting.append((buffer, _threads().submit(os.preadv, fd, [buffer], start)))
                start += _BLOCK
    finally:
        _settle(waiting)


class Writer:
    """Writes blocks to a file past the cache while the next ones are made."""

    def __init__(self, fd: int, size: int) -> None:
        self._fd, self._size, self._at = fd, size, 0
        self._free = [mmap.mmap(-1, min(_BLOCK, -(-max(1, size) // _ALIGNED) * _ALIGNED)) for _ in range(_AHEAD)]
        self._waiting: deque[tuple[mmap.mmap, Future[int]]] = deque()

    def buffer(self) -> memoryview:
        """Return a buffer to be filled. Raises OSError when a block before it could not be written."""
        if not self._free:
            self._free.append(self._written())
        return memoryview(self._free[-1])

    def put(self, count: int, *, hole: bool = False) -> None:
        """Write that many bytes of the buffer, or leave a hole of that size; all blocks but the last are whole ones."""
        if not hole:
            buffer = self._free.pop()
            whole = -(-count // _ALIGNED) * _ALIGNED
            self._waiting.append((buffer, _threads().submit(_write, self._fd, memoryview(buffer)[:whole], self._at)))
        self._at += count

    def end(self) -> None:
        """Wait for what is under way and give the file its size. Raises OSError."""
        while self._waiting:
            self._free.append(self._written())
        os.ftruncate(self._fd, self._at)

    def close(self) -> None:
        """Wait for what is under way, however it ends: the file may be closed then."""
        _settle(self._waiting)

    def _written(self) -> mmap.mmap:
        buffer, writing = self._waiting.popleft()
        writing.result()
        return buffer


def _write(fd: int, block: memoryview, at: int) -> int:
    count = os.pwrite(fd, block, at)
    if count != len(block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return count


def _settle(waiting: deque[tuple[mmap.mmap, Future[int]]]) -> None:
    for _, under_way in waiting:
        if not under_way.cancel():
            under_way.exception()
    waiting.clear()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS)

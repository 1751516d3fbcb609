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
import threading
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


#: A file of this many bytes, or fewer, is read at once.
SMALL = _BLOCK - _ALIGNED
_local = threading.local()
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


def past_cache(fd: int) -> bool:
    """Have an open file read from the disk, or the server, itself from now on; False where that is not possible.

    Letting go of its cached pages is not as good: under load the system keeps some all the same.
    """
    if not _DIRECT:
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, _DIRECT)
    except OSError:
        return False
    return True


def write_past_cache(fd: int) -> bool:
    """Have it written so as well; False also where a server, and not a local disk, takes what is written."""
    return bool(_DIRECT) and kind_of(fd) in _DISKS and past_cache(fd)


def cache_again(fd: int) -> None:
    """Undo it."""
    fcntl.fcntl(fd, fcntl.F_SETFL, 0)


def read_small(fd: int, size: int) -> memoryview:
    """Return the bytes of a file that is read past the cache, at most a block of them; good until the next is read.

    Raises OSError.
    """
    buffer = getattr(_local, "buffer", None)
    if buffer is None:
        buffer = _local.buffer = mmap.mmap(-1, _BLOCK)
    view = memoryview(buffer)[: min(_BLOCK, -(-(size + 1) // _ALIGNED) * _ALIGNED)]
    return view[: os.preadv(fd, [view], 0)]


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

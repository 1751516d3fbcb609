"""Keeps freed memory in the process while a large trace is read."""

from __future__ import annotations

import ctypes
import sys

#: Numbers that glibc gives these settings of its allocator.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _LARGEST = 64 << 20, 32 << 20


def keep_freed_memory() -> None:
    """Ask the C library to keep up to 64 MiB of freed memory; does nothing where it is not glibc.

    A chunk's text and events are freed before the next one is read. By default glibc gives such memory back to the
    system each time, which has to clear it for the next chunk: a third of the time that reading took.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST)
    mallopt(_TRIM_THRESHOLD, _KEPT)

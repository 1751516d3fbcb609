"""Whose turn it is to bring bytes home."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

#: How long a transfer takes to start where none has been seen yet, in seconds.
_START = 0.3
_LONGEST_START = 5.0


class Wire:
    """So many transfers at once; the next one may start while the last bytes of one before it are coming.

    A transfer says nothing useful while its session opens and its far side starts; that time is measured, and a turn
    ends when what is left is expected to take no longer.
    """

    def __init__(self, places: int) -> None:
        self._places = threading.Semaphore(max(1, places))
        self.start = _START

    @contextmanager
    def turn(self, total: int) -> Iterator[Turn]:
        """Wait for a place; `total` is what is to come, in bytes."""
        self._places.acquire()
        turn = Turn(self, total)
        try:
            yield turn
        finally:
            turn.end()

    def free(self) -> None:
        """Give a place back."""
        self._places.release()


class Turn:
    """A place on the wire."""

    def __init__(self, wire: Wire, total: int) -> None:
        self._wire, self._total = wire, total
        self._began = time.monotonic()
        self._first: float | None = None
        self._ended = False

    def at(self, count: int) -> None:
        """So many bytes have come since it began."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
            self._wire.start = min(_LONGEST_START, max(_START, now - self._began))
        rate = count / max(now - self._first, 1e-3)
        if not self._ended and now > self._first and self._total - count < rate * self._wire.start:
            self.end()

    def end(self) -> None:
        """Give the place back, once."""
        if not self._ended:
            self._ended = True
            self._wire.free()

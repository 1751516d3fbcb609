"""How a pull goes, on a terminal: a bar with rate on stderr, a line a folder on stdout."""

from __future__ import annotations

import sys
import threading
import time

from underfed.carry.names import shown, size_text
from underfed.carry.pull import Watcher
from underfed.carry.unit_outcome import UnitOutcome
from underfed.report.page import say


class Terminal(Watcher):
    """Prints; the bar appears only where stderr is a terminal."""

    def __init__(self, *, lines: bool, quiet: bool) -> None:
        self.lines, self.quiet = lines, quiet
        self._lock = threading.Lock()
        self._bytes = self._folders = self._ended = 0
        self._total = 0
        self._began = self._shown = time.monotonic()
        self._bar = sys.stderr.isatty() and not quiet

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def expect(self, folders: int) -> None:
        """Note how many folders there are."""
        self._folders = folders

    def planned(self, count: int) -> None:
        """Note that so many more bytes are to come."""
        with self._lock:
            self._total += count

    def moved(self, count: int) -> None:
        """Count bytes and draw the bar at most five times a second."""
        with self._lock:
            self._bytes += count
            now = time.monotonic()
            if not self._bar or now - self._shown < 0.2:
                return
            self._shown = now
            rate = self._bytes / max(now - self._began, 1e-3)
            left = max(0, self._total - self._bytes)
            whole = self._bytes / self._total if self._total else 0.0
            filled = int(min(1.0, whole) * 20)
            remains = f"{left / rate:.0f} s left" if rate > 0 else ""
            bar = "#" * filled + "." * (20 - filled)
            text = f"[{bar}] {size_text(self._bytes)} of {size_text(self._total)}, {size_text(rate)}/s, {remains}"
            sys.stderr.write(f"\r\x1b[K{text}, folder {min(self._ended + 1, self._folders)} of {self._folders}")
            sys.stderr.flush()

    def retry(self, name: str, why: str, seconds: float) -> None:
        """Say that a link dropped."""
        if not self.quiet:
            self._clear()
            sys.stderr.write(f"underfed: {shown(name)}: {why}; again in {seconds:.0f} s\n")
            sys.stderr.flush()

    def done(self, unit: UnitOutcome) -> None:
        """Print a folder's lines."""
        with self._lock:
            self._ended += 1
        if self.lines and (not self.quiet or not unit.verified):
            self._clear()
            say("\n".join(unit.line()))

    def _clear(self) -> None:
        if self._bar:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

"""Readers: a profiler's trace file in, a Timeline out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underfed.timeline.facts import TraceFacts


def trace_facts(path: str | Path, window_ns: tuple[int, int] | None = None, *, processes: int = 1) -> TraceFacts:
    """Read one trace and sum it up.

    `window_ns` restricts the figures to a window (begin, end in Unix ns; on the trace's own clock where it has no
    base). A large file is read in up to `processes` processes; more than one needs a main module that can be imported.
    Raises UsageError where the file is not a trace that can be read.
    """
    from underfed.timeline.facts import facts_of
    from underfed.trace.kineto import read

    return facts_of(read(path, processes), window_ns)

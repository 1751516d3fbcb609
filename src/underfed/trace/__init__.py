"""Readers: a profiler's trace file in, a Timeline out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from underfed.timeline.facts import TraceFacts


def rank_facts(
    path: str | Path,
    window_ns: tuple[int, int] | None = None,
    *,
    processes: int = 1,
    step_ms: float | None = None,
    what_if: bool = False,
) -> list[TraceFacts]:
    """Read one trace and sum it up: one entry a process, of which only Nsight's exports hold several.

    `window_ns` restricts the figures to a window (begin, end in Unix ns; on the trace's own clock where it has no
    base). A large file is read in up to `processes` processes; more than one needs a main module that can be imported.
    With `what_if` the step is replayed without each cause of waiting as well, held against `step_ms`, the step's time
    without the profiler, where that is known.
    Raises UsageError where the file is not a trace that can be read.
    """
    from underfed.timeline.facts import facts_of
    from underfed.trace.evidence import untraced_ns
    from underfed.trace.kineto import read
    from underfed.trace.nsight import is_nsight, read_nsight
    from underfed.trace.source import is_url

    untraced = partial(untraced_ns, step_ms=step_ms) if what_if else None
    if not is_url(path) and is_nsight(Path(path)):
        return [facts_of(timeline, window_ns, untraced) for timeline in read_nsight(Path(path))]
    return [facts_of(read(path, processes), window_ns, untraced)]


def trace_facts(path: str | Path, window_ns: tuple[int, int] | None = None, *, processes: int = 1) -> TraceFacts:
    """Read one trace as `rank_facts` does; of several processes in it, the one whose device works most."""
    found = rank_facts(path, window_ns, processes=processes)
    return max(found, key=lambda one: one.main.totals.busy_ns if one.main else 0)

"""Many traces at once: read in parallel processes, or as tasks of Ray; only small facts travel back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import msgspec

from underfed.errors import MeasurementError, UnderfedError, UsageError
from underfed.timeline.facts import TraceFacts
from underfed.trace.places import Place, places_of
from underfed.trace.source import shown

#: Below this many bytes in all, starting processes takes longer than they save.
_WORTH_PROCESSES = 16 << 20
#: Each process inflates the whole file, so more of them than this gain nothing on one file.
MOST_PROCESSES = 6

files_of = places_of
#: Encoded facts of the ranks in one file, or the error's text.
Outcome = tuple[list[bytes], str]
Progress = Callable[[int, int], None]


def read_many(
    files: Sequence[Place],
    workers: int | None = None,
    *,
    on: str | None = None,
    progress: Progress | None = None,
    step_ms: float | None = None,
) -> tuple[list[tuple[Place, TraceFacts]], list[str]]:
    """Read traces; a file that cannot be read becomes a line of the limits, unless none can.

    `on` is None for processes of this machine, `ray` or `ray://ADDRESS`. `progress` is told how many of how many files
    are read. `step_ms` is the step's time without the profiler, where that is known. Raises the UnderfedError of the
    first file where not one could be read.
    """
    found: list[tuple[Place, TraceFacts]] = []
    refused: list[UnderfedError] = []
    for path, outcome in zip(files, _outcomes(files, workers, on, progress or _quiet, step_ms), strict=True):
        if isinstance(outcome, UnderfedError):
            refused.append(outcome)
        else:
            found += [(path, msgspec.msgpack.decode(one, type=TraceFacts)) for one in outcome]
    if not found:
        raise refused[0]
    return found, [f"left out: {error}" for error in refused]


def _quiet(_done: int, _of: int) -> None:
    pass


def _outcomes(
    files: Sequence[Place], workers: int | None, on: str | None, progress: Progress, step_ms: float | None
) -> list[list[bytes] | UnderfedError]:
    if on is not None:
        from underfed.trace.on_ray import read_on_ray

        return [_opened(one) for one in read_on_ray(files, on, progress, step_ms)]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = min(workers or usable, len(files))
    if number < 2 or (workers is None and not _worth_processes(files)):
        each = min(workers or usable, MOST_PROCESSES) if len(files) == 1 else 1
        alone = []
        for at, path in enumerate(files):
            alone.append(_opened(encoded(path, each, step_ms)))
            progress(at + 1, len(files))
        return alone
    return list(_in_processes(files, number, progress, step_ms))


def _worth_processes(files: Sequence[Place]) -> bool:
    sizes = [one.stat().st_size for one in files if isinstance(one, Path) and one.is_file()]
    return sum(sizes) >= _WORTH_PROCESSES or len(sizes) < len(files)


def _in_processes(
    files: Sequence[Place], number: int, progress: Progress, step_ms: float | None
) -> Iterator[list[bytes] | UnderfedError]:
    """Read in `number` processes. Where one is killed, what is left is read anew, each file by a process of its own, so
    that only the file that brings one down is lost.
    """
    done: dict[int, list[bytes] | UnderfedError] = {}
    try:
        with ProcessPoolExecutor(number, mp_context=get_context("spawn")) as pool:
            places = {pool.submit(encoded, path, 1, step_ms): at for at, path in enumerate(files)}
            for one in as_completed(places):
                done[places[one]] = _opened(one.result())
                progress(len(done), len(files))
    except BrokenProcessPool:
        for at, path in enumerate(files):
            if at not in done:
                done[at] = _by_itself(path, step_ms)
                progress(len(done), len(files))
    return (done[at] for at in range(len(files)))


def _by_itself(path: Place, step_ms: float | None) -> list[bytes] | UnderfedError:
    try:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return _opened(pool.submit(encoded, path, 1, step_ms).result())
    except BrokenProcessPool:
        return MeasurementError(
            f"the process that read {shown(path)} was killed, most likely for memory: free some, or read it elsewhere"
        )


def encoded(path: Place, processes: int = 1, step_ms: float | None = None) -> Outcome:
    """Read one file; facts or an error as what can travel between processes."""
    from underfed.trace import rank_facts

    try:
        found = rank_facts(path, processes=processes, step_ms=step_ms, what_if=True)
        return [msgspec.msgpack.encode(one) for one in found], ""
    except UnderfedError as error:
        return [], str(error)


def _opened(outcome: Outcome) -> list[bytes] | UnderfedError:
    data, error = outcome
    return UsageError(error) if error else data

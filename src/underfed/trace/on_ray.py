"""Reads traces as tasks of Ray, one a file: on this machine, or on a cluster that sees the same files or object store.

Ray starts a lost task again, elsewhere if need be; a file that keeps failing is a limit and not a crash.
"""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from underfed.errors import MeasurementError, UsageError
from underfed.trace.places import Place
from underfed.trace.source import one_line, shown

if TYPE_CHECKING:
    from underfed.trace.many import Outcome, Progress

_RETRIES = 3
#: Tasks in flight for each CPU of the cluster: more would only wait in its memory.
_AHEAD = 2


def address_of(on: str) -> str | None:
    """Return the address in `ray` or `ray://HOST:PORT`, None for this machine; raises UsageError for anything else."""
    if on == "ray":
        return None
    if on.startswith("ray://") and len(on) > len("ray://"):
        return on
    raise UsageError(f"read: --on {shown(on)}: give ray, for this machine, or ray://HOST:PORT, for a cluster")


def read_on_ray(files: Sequence[Place], on: str, progress: Progress, step_ms: float | None = None) -> list[Outcome]:
    """Read each file in a task of its own, and return the outcomes in order.

    Raises UsageError where the extra is missing or the cluster cannot be reached.
    """
    address = address_of(on)
    try:
        import ray
    except ImportError:
        raise UsageError("read: --on ray needs an extra: pip install 'underfed[ray]'") from None
    ours = not ray.is_initialized()
    # What Ray tells of workers that died goes to stdout, which is the diagnosis's.
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # errors are one line
        if ours:
            try:
                # The workers' lines do not belong on our stderr.
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:  # Ray raises errors of many kinds here
                raise UsageError(f"read: --on {shown(on)}: {one_line(error)}") from None
        try:
            return _run(ray, [_everywhere(one) for one in files], progress, step_ms)
        finally:
            if ours:
                ray.shutdown()


def _everywhere(place: Place) -> Place:
    """Make a path absolute: a worker has another current folder."""
    return place.absolute() if isinstance(place, Path) else place


def _run(ray: Any, files: Sequence[Place], progress: Progress, step_ms: float | None) -> list[Outcome]:
    from underfed.trace.many import encoded

    task = ray.remote(num_cpus=1, max_retries=_RETRIES)(encoded)
    most = max(1, int(ray.cluster_resources().get("CPU", 1))) * _AHEAD
    outcomes: list[Outcome] = [([], "")] * len(files)
    waiting: dict[Any, int] = {}
    done = 0
    for at, place in enumerate(files):
        waiting[task.remote(place, 1, step_ms)] = at
        while len(waiting) >= most or (at + 1 == len(files) and waiting):
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for one in ready:
                place_of = waiting.pop(one)
                outcomes[place_of] = _outcome(ray, one, files[place_of])
                done += 1
                progress(done, len(files))
    return outcomes


def _outcome(ray: Any, one: Any, place: Place) -> Outcome:
    try:
        found: Outcome = ray.get(one)
    except ray.exceptions.RayError as error:
        lost = MeasurementError(f"the task that read {shown(place)} was lost {_RETRIES + 1} times: {one_line(error)}")
        return [], str(lost)
    return found

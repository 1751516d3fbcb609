"""`underfed read`: what a saved trace means."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def read(
    *paths: str,
    step_ms: float | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    facts: str | None = None,
    on: str | None = None,
) -> int:
    """Say what a saved torch.profiler or Nsight trace means: `underfed read trace.json.gz --step-ms 29.7`.

    Takes files, folders, glob patterns and URLs of object stores; several traces are the ranks of one run. A profiler
    slows the host, so a trace alone makes a well fed GPU look idle: `--step-ms` gives the step's time without it.
    Without that, the time is estimated, and the confidence is lower.

    For example:

        underfed read trace.json.gz --step-ms 29.7
        underfed read traces/ --json

    Parameters
    ----------
    paths
        Traces: .json or .json.gz of torch.profiler, .sqlite of `nsys export`, folders of them, or patterns in quotes.
    step_ms
        Time of a step in ms, measured without a profiler.
    json
        Print the diagnosis as JSON.
    facts
        Also write what was counted (kernels, copies, collectives, gaps, steps, ranks) to this file, as JSON in ns.
    on
        Where to read many traces: `ray` on this machine, ray://HOST:PORT on a cluster. Default: processes of this
        machine.
    """
    import math
    import sys
    from pathlib import Path

    from underfed.errors import UsageError

    if not paths:
        raise UsageError(
            "read: no trace; name a file that torch.profiler or nsys exported: underfed read trace.json.gz"
        )
    if step_ms is not None and not (math.isfinite(step_ms) and step_ms > 0):
        raise UsageError(f"read: --step-ms {step_ms}: give the time of a step in ms, above 0")

    import msgspec

    from underfed.diagnosis import to_json
    from underfed.report import card
    from underfed.report.page import say, wants_colour
    from underfed.trace.many import read_many
    from underfed.trace.meaning import diagnosis_of
    from underfed.trace.on_ray import address_of
    from underfed.trace.places import places_of
    from underfed.trace.source import shown
    from underfed.trace.tell import progress_bar, write_facts

    if on is not None:
        address_of(on)
    places = places_of(paths)
    if facts is not None and Path(facts).resolve() in {one.resolve() for one in places if isinstance(one, Path)}:
        raise UsageError(f"read: --facts {shown(facts)} would overwrite a trace that is read")
    found, refused = read_many(places, on=on, progress=progress_bar(), step_ms=step_ms)
    ranks = [one for _, one in found]
    diagnosis = diagnosis_of(ranks, [str(path) for path, _ in found], step_ms)
    diagnosis = msgspec.structs.replace(diagnosis, limits=[*diagnosis.limits, *refused])
    if facts is not None:
        write_facts(Path(facts), ranks)
    if json:
        say(to_json(diagnosis).decode())
    elif sys.stdout is not None and wants_colour(sys.stdout):
        card.write(diagnosis, sys.stdout)
    else:
        say(card.render(diagnosis))
    return 0

"""`underfed read`: what a saved profiler trace means."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def read(
    *paths: str,
    step_ms: float | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Say what a saved torch.profiler trace means: `underfed read trace.json.gz --step-ms 29.7`.

    Takes files, folders and glob patterns; several traces are the ranks of one run. A profiler slows the host, so a
    trace alone makes a well fed GPU look idle: `--step-ms` gives the step's time without it. Without that, the time is
    estimated, and the confidence is lower.

    Parameters
    ----------
    paths
        Traces: .json or .json.gz, folders of them, or patterns in quotes.
    step_ms
        Time of a step in ms, measured without a profiler.
    json
        Print the diagnosis as JSON.
    """
    import math
    import sys

    from underfed.errors import UsageError

    if not paths:
        raise UsageError("read: no trace; name a file that torch.profiler exported: underfed read trace.json.gz")
    if step_ms is not None and not (math.isfinite(step_ms) and step_ms > 0):
        raise UsageError(f"read: --step-ms {step_ms}: give the time of a step in ms, above 0")

    import msgspec

    from underfed.diagnosis import to_json
    from underfed.report import card
    from underfed.report.page import say, wants_colour
    from underfed.trace.many import files_of, read_many
    from underfed.trace.meaning import diagnosis_of

    found, refused = read_many(files_of(paths))
    diagnosis = diagnosis_of([facts for _, facts in found], [str(path) for path, _ in found], step_ms)
    diagnosis = msgspec.structs.replace(diagnosis, limits=[*diagnosis.limits, *refused])
    if json:
        say(to_json(diagnosis).decode())
    elif sys.stdout is not None and wants_colour(sys.stdout):
        card.write(diagnosis, sys.stdout)
    else:
        say(card.render(diagnosis))
    return 0

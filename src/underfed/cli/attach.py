"""`underfed attach`: what a run that is already going waits for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def attach(
    process: str | None = None,
    *,
    gpu: int | None = None,
    seconds: float = 10.0,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
) -> int:
    """Say what a run that is already going waits for: `underfed attach PID`.

    Looks from outside for a while, at the process and all below it: stacks by py-spy, CPU time, queues, limits and
    GPUs. The run is neither stopped nor changed, and nothing is written. Ctrl-C ends the look early.

    Parameters
    ----------
    process
        A pid, or a part of the command line.
    gpu
        Look at whoever holds this GPU.
    seconds
        How long to look.
    json
        File for the diagnosis as JSON; `-` prints it instead of the card.
    """
    import math
    import sys

    from underfed.errors import MeasurementError, UsageError

    if not (math.isfinite(seconds) and 0.5 <= seconds <= 3600):
        raise UsageError(f"attach: --seconds {seconds:g}: give 0.5 to 3600")
    if process is not None and gpu is not None:
        raise UsageError("attach: give a process or --gpu, not both")
    if json is not None and str(json) != "-" and not json.absolute().parent.is_dir():
        raise UsageError(f"attach: --json {json}: its folder does not exist; create it first")
    if sys.platform != "linux":
        raise UsageError("attach: works on Linux only")

    from underfed.diagnose.live import diagnose
    from underfed.diagnosis import to_json
    from underfed.observe.launch_streams import plug_closed_streams
    from underfed.observe.live.permission import denied, missing
    from underfed.observe.live.target import choose
    from underfed.observe.live.window import watch
    from underfed.report import card
    from underfed.report.live import middle
    from underfed.report.page import plain, say, show, wants_colour

    plug_closed_streams()  # else a file of ours would take the number of a stream that a child inherits
    target = choose(process, gpu)
    if sys.stderr is not None:
        print(f"underfed: looking at process {target.pid} for {seconds:g} s", file=sys.stderr)
    try:
        seen = watch(target, seconds)
    except KeyboardInterrupt:  # a second one, while the samplers end
        return 130
    if not any(life.python for life in seen.lives):
        name = seen.lives[0].first.comm if seen.lives else "?"
        raise MeasurementError(f"attach: process {target.pid} ({name}) runs no Python, nor does any below it")
    permission = missing(target.pid) if denied(target.pid, seen.sampling.reason) else None
    diagnosis = diagnose(seen, permission)
    if json is not None and str(json) != "-":
        try:
            json.write_bytes(to_json(diagnosis))
        except OSError as error:
            raise UsageError(f"attach: --json {json}: {error.strerror}") from error
    if json is not None and str(json) == "-":
        say(to_json(diagnosis).decode())
        return 0
    colour = sys.stdout is not None and wants_colour(sys.stdout)
    head = diagnosis.live.headline
    lines = card.lines(
        diagnosis, recording=None, colour=colour, middle=middle(diagnosis, ascii_only=not colour), head=head
    )
    if colour:
        show(lines, sys.stdout, colour=True)
    else:
        say(plain(lines))
    return 0

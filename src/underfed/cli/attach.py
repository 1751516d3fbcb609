"""`underfed attach`: what a run that is already going waits for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.diagnose.live_records import LiveDiagnosis
    from underfed.observe.live.target import Target
    from underfed.observe.live.window import Seen


def attach(
    process: str | None = None,
    *,
    gpu: int | None = None,
    host: str | None = None,
    seconds: float = 10.0,
    watch: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
) -> int:
    """Say what a run that is already going waits for: `underfed attach PID`.

    Looks from outside for a while, at the process and all below it: stacks by py-spy, CPU time, queues, limits and
    GPUs. The run is neither stopped nor changed, and nothing is written. Ctrl-C ends the look early.

    For example:

        underfed attach 4321
        underfed attach train.py --seconds 30

    Parameters
    ----------
    process
        A pid, or a part of the command line.
    gpu
        Look at whoever holds this GPU.
    host
        Look at a process of another machine, by ssh: `underfed attach PID --host ALIAS`. Nothing needs to be
        installed there but Python; nothing is left there.
    seconds
        How long to look.
    watch
        Go on looking until the run ends, or until q or Ctrl-C: a live page in a terminal, elsewhere a line whenever the
        verdict changes. Each verdict rests on the last `--seconds`.
    json
        File for the diagnosis as JSON; `-` prints it instead of the card. With `--watch`, one line for each new
        verdict.
    """
    import math
    import sys

    from underfed.errors import UsageError

    if not (math.isfinite(seconds) and 0.5 <= seconds <= 3600):
        raise UsageError(f"attach: --seconds {seconds:g}: give 0.5 to 3600")
    if process is not None and gpu is not None:
        raise UsageError("attach: give a process or --gpu, not both")
    if json is not None and str(json) != "-" and not json.absolute().parent.is_dir():
        raise UsageError(f"attach: --json {json}: its folder does not exist; create it first")
    if host is not None:
        if watch:
            raise UsageError("attach: --watch works on this machine only; log in there, or leave --watch out")
        return _elsewhere(host, process, gpu, seconds, json)
    if sys.platform != "linux":
        raise UsageError("attach: works on Linux only; --host looks at one that is")

    from underfed.observe.launch_streams import plug_closed_streams
    from underfed.observe.live.permission import denied, missing
    from underfed.observe.live.target import choose
    from underfed.observe.live.window import watch as look

    plug_closed_streams()  # else a file of ours would take the number of a stream that a child inherits
    target = choose(process, gpu)
    if watch:
        return _watched(target, seconds, json)
    if sys.stderr is not None:
        print(f"underfed: looking at process {target.pid} for {seconds:g} s", file=sys.stderr)
    try:
        seen = look(target, seconds)
    except KeyboardInterrupt:  # a second one, while the samplers end
        return 130
    permission = missing(target.pid) if denied(target.pid, seen.sampling.reason) else None
    return _tell(seen, permission, json)


def _elsewhere(host: str, process: str | None, gpu: int | None, seconds: float, json: Path | None) -> int:
    """Look at a process of another machine."""
    import sys

    from underfed.errors import MeasurementError, UsageError
    from underfed.remote.seen import unpack
    from underfed.remote.session import ask, check_host

    if gpu is None and (process is None or not process.strip()):
        raise UsageError(f"attach: name a process there: underfed attach PID --host {check_host(host)}")
    if sys.stderr is not None:
        what = process if gpu is None else f"GPU {gpu}"
        print(f"underfed: looking at {what} on {check_host(host)} for {seconds:g} s", file=sys.stderr)
    request = {"what": "attach", "process": process, "gpu": gpu, "seconds": seconds}
    answer = ask(check_host(host), request, seconds)
    try:
        seen, permission = unpack(answer["seen"]), answer["permission"]
    except (KeyError, ValueError) as error:
        raise MeasurementError(f"{host}: gives what is no answer of ours") from error
    return _tell(seen, None if permission is None else str(permission), json)


def _tell(seen: Seen, permission: str | None, json: Path | None) -> int:
    """Judge what was seen, and print the card or write the JSON."""
    from underfed.diagnose.live import diagnose
    from underfed.diagnosis import to_json
    from underfed.errors import UsageError
    from underfed.observe.live.target import no_python
    from underfed.report.page import say

    if not any(life.python for life in seen.lives):
        raise no_python(seen.target.pid, seen.lives[0].first.comm if seen.lives else "?")
    diagnosis = diagnose(seen, permission)
    if json is not None and str(json) != "-":
        try:
            json.write_bytes(to_json(diagnosis))
        except OSError as error:
            raise UsageError(f"attach: --json {json}: {error.strerror}") from error
    if json is not None and str(json) == "-":
        say(to_json(diagnosis).decode())
        return 0
    _show(diagnosis)
    return 0


def _show(diagnosis: LiveDiagnosis) -> None:
    """Print the card of a live look."""
    import sys

    from underfed.report import card
    from underfed.report.live import middle
    from underfed.report.page import plain, say, show, wants_colour

    colour = sys.stdout is not None and wants_colour(sys.stdout)
    head = diagnosis.live.headline
    lines = card.lines(
        diagnosis, recording=None, colour=colour, middle=middle(diagnosis, ascii_only=not colour), head=head
    )
    if colour:
        show(lines, sys.stdout, colour=True)
    else:
        say(plain(lines))


def _watched(target: Target, seconds: float, json: Path | None) -> int:
    """Watch until the run or the user ends it, and say the last verdict."""
    import os
    import sys

    from underfed.live_view import watch
    from underfed.report.page import say

    if not os.isatty(1):
        print(f"underfed: watching process {target.pid}; Ctrl-C ends that, the run goes on", file=sys.stderr)
    try:
        done = watch.watch(target, seconds, json=json)
    except KeyboardInterrupt:  # a second one, while the samplers end
        return 130
    if done.signal is not None:
        watch.die_by(done.signal)
    quiet = json is not None and str(json) == "-"
    if done.ended == "exit":
        print(watch.ending(done, target), file=sys.stderr if quiet else sys.stdout)
    elif done.last is not None and not quiet:
        if os.isatty(1):
            _show(done.last)
        else:
            say(watch.one_line(done.state))
    return 0

"""`underfed run`: start the command, watch it from beside, say what keeps it slow."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.live_view.beside import Beside
    from underfed.live_view.terminal import LastRow, Screen
    from underfed.observe.launch import Status
    from underfed.observe.watch import Watch


def run(
    *,
    out: Path | None = None,
    window: str = "10",
    steps: int | None = None,
    live: Annotated[bool | Literal["screen"], Parameter(negative=())] = False,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    command: Annotated[list[str], Parameter(parse=False)],
) -> int:
    """Run a training command unchanged and say what keeps it slow: `underfed run -- python train.py`.

    The command keeps its streams, signals and exit code, which are also those of `underfed run`. Nothing is written but
    lines on stderr and one folder.

    For example:

        underfed run -- python train.py
        underfed run --steps 500 --json verdict.json -- torchrun --nproc-per-node 2 train.py

    Parameters
    ----------
    out
        Folder for the recording: new or empty. Default: a new one below $TMPDIR/underfed-UID.
    window
        Steps that are traced once to see the device at work, or `off`.
    steps
        Stop watching after this many steps; the command goes on.
    live
        Show step time, budget and verdict while the command runs: in the last row of the terminal, which the command's
        output then leaves out. `--live=screen` takes the whole terminal, for a command that writes elsewhere.
    json
        File for the diagnosis as JSON; `-` is stdout.
    """
    from underfed.errors import UsageError

    if not command:
        raise UsageError("run: no command; write it after two dashes: underfed run -- python train.py")
    if window != "off" and not (window.isascii() and window.isdigit() and int(window) > 0):
        raise UsageError(f"run: --window {window}: give a number of steps from 1 on, or off")
    if steps is not None and steps < 1:
        raise UsageError(f"run: --steps {steps}: give a number of steps from 1 on")
    if json is not None and str(json) != "-" and not json.absolute().parent.is_dir():
        raise UsageError(f"run: --json {json}: its folder does not exist; create it first")
    if sys.platform != "linux":
        return _unobserved(command)
    view = _view(live)
    return _observed(command, out=out, window=window, steps=steps, json=json, view=view)


def _view(live: bool | str) -> LastRow | Screen | None:
    """Return where the live view goes; None where none is wanted or nobody would see it."""
    if not live:
        return None
    from underfed.live_view.terminal import terminal_of

    return terminal_of("screen" if live == "screen" else "line")


def _observed(
    command: list[str],
    *,
    out: Path | None,
    window: str,
    steps: int | None,
    json: Path | None,
    view: LastRow | Screen | None,
) -> int:
    from underfed.observe import launch
    from underfed.observe.launch_environment import inherited_environment, with_agent
    from underfed.observe.launch_streams import plug_closed_streams, say
    from underfed.recording.place import NoPlaceError, discard, new_folder, write_header

    plug_closed_streams()
    environment = inherited_environment()
    folder = None
    try:
        folder = new_folder(out)
        write_header(folder, command)
        options = {"window": window} if steps is None else {"window": window, "steps": str(steps)}
        environment = with_agent(environment, folder, options)
    except NoPlaceError as error:
        folder = None
        say(f"{error}. The command runs, but nothing is recorded")
    observer = _Observer(folder, window=window, steps=steps, json=json)
    if view is not None:
        observer.show(view, command)
    try:
        status = launch.run_command(command, environment, tick=observer.tick, finish=observer.finish)
    except launch.CannotStartError:
        if folder is not None:
            discard(folder)
        raise
    launch.leave(status)


class _Observer:
    """Makes the Watch once the command runs, so that its imports do not delay the start."""

    def __init__(self, folder: Path | None, *, window: str, steps: int | None, json: Path | None) -> None:
        self._folder, self._window, self._steps, self._json = folder, window, steps, json
        self._watch: Watch | None = None
        self._failed = False
        self._view: LastRow | Screen | None = None
        self._command: list[str] = []
        self._beside: Beside | None = None

    def show(self, view: LastRow | Screen, command: list[str]) -> None:
        """Show what is seen while the command runs; Ctrl-Z gives the terminal back before it stops this process."""
        import os
        import signal

        self._view, self._command = view, command

        def stop(number: int, _: object) -> None:
            if self._beside is not None:
                with contextlib.suppress(Exception):  # this thread waits for the command, whatever the view does
                    self._beside.pause()
            os.kill(os.getpid(), signal.SIGSTOP if number == signal.SIGTSTP else number)
            if self._beside is not None:
                self._beside.resume()

        if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
            signal.signal(signal.SIGTSTP, stop)

    def tick(self) -> None:
        from underfed.observe.launch_streams import say

        if self._failed:
            return
        if self._watch is None:
            self._failed = True  # one attempt
            if self._folder is not None:
                say(f"recording to {self._folder}")
            from underfed.observe.watch import Watch

            self._watch = Watch(self._folder, window=self._window, steps=self._steps, json_file=self._json)
            self._failed = False
        self._watch.tick()
        if self._view is not None and self._folder is not None:
            self._draw(self._view, self._folder)

    def _draw(self, view: LastRow | Screen, folder: Path) -> None:
        try:
            if self._beside is None:
                from underfed.live_view.beside import Beside

                self._beside = Beside(folder, self._command, view)
            self._beside.tick()
        except Exception:
            self._view = None  # the row is not worth more than one attempt
            if self._beside is not None:
                self._beside.pause()
            raise

    def finish(self, status: Status) -> None:
        import signal

        from underfed.observe.launch_streams import say

        if self._beside is not None:
            self._beside.pause()
            self._view = None
        if status.signal == signal.SIGKILL:
            say("the command was ended by SIGKILL; if nobody sent it, memory ran out (see dmesg, or memory.events)")
        if self._watch is None:
            self.tick()
        if self._watch is not None:
            self._watch.finish(status.code, status.signal)


def _unobserved(command: list[str]) -> int:
    """Run the command as it is where Linux's ways to watch it are missing."""
    import os
    import subprocess

    print("underfed: run watches on Linux only; here the command runs as it is", file=sys.stderr)
    try:
        if os.name == "posix":
            os.execvp(command[0], command)  # noqa: S606 - the user's own command
        return subprocess.call(command)
    except FileNotFoundError:
        print(f"underfed: {command[0]}: command not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"underfed: {command[0]}: cannot be started: {error.strerror}", file=sys.stderr)
        return 126

"""`attach --watch`: the loop that takes in what was seen and shows it, as a page, as lines or as JSON lines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from underfed.errors import UsageError
from underfed.live_view.draw import page
from underfed.live_view.gauges import Sample, gauges
from underfed.live_view.outside import Outside, Verdict, sample
from underfed.live_view.signals import Signals
from underfed.live_view.state import Reading, State, judge, read
from underfed.live_view.terminal import Screen, moves_cursor, taste
from underfed.live_view.words import command_words, judged
from underfed.observe.live import proc
from underfed.observe.live.target import Target, no_python
from underfed.observe.live.window import Glance
from underfed.report.page import say
from underfed.report.text import clean

if TYPE_CHECKING:
    from underfed.diagnose.live_records import LiveDiagnosis

_EVERY_S = 1.0
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class Watched:
    """How a watch ended: by the target's `exit`, by the user (`quit`), or by the signal of this number."""

    last: LiveDiagnosis | None
    state: State
    ended: str
    signal: int | None = None


def watch(target: Target, seconds: float, *, json: Path | None) -> Watched:
    """Watch a run until it ends or the user does; verdicts rest on the last `seconds`.

    Raises MeasurementError where no Python runs there, UsageError where the JSON cannot be written.
    """
    on_stdout = json is not None and str(json) == "-"
    screen = None
    if not on_stdout and sys.stdout is not None and moves_cursor(1):
        screen = Screen(1, keys=0 if os.isatty(0) else None)
    with contextlib.ExitStack() as stack:
        lines = None if json is None or on_stdout else stack.enter_context(_opened(json))
        loop = _Loop(target, seconds, screen, lines, to_stdout=on_stdout)
        signals = stack.enter_context(Signals(loop.pause))
        if screen is not None:
            stack.callback(screen.give_back)
        return loop.run(signals)


def _opened(json: Path) -> TextIO:
    try:
        return json.open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"attach: --json {json}: {error.strerror}") from error


class _Loop:
    """Everything that one watch holds."""

    def __init__(
        self, target: Target, seconds: float, screen: Screen | None, lines: TextIO | None, *, to_stdout: bool
    ) -> None:
        words = command_words(proc.command_line(target.pid))
        now = time.time()
        self.state = State(
            title=f"attach {target.pid}  {words}",
            hint="q quits, the run goes on" if screen is not None else "",
            began=now,
            at=now,
        )
        self.target = target
        self.screen = screen
        self.last: LiveDiagnosis | None = None
        self._lines, self._to_stdout = lines, to_stdout
        self._seconds = seconds
        self._before: Sample | None = None
        self._quit = False
        self._colour, self._ascii = taste()

    def pause(self) -> None:
        """Give the terminal back for as long as this process is stopped."""
        if self.screen is not None:
            self.screen.give_back()

    def run(self, signals: Signals) -> Watched:
        """Go on until something ends it."""
        outside = Outside(self.target, self._seconds)
        ended, stopping = "", None
        while not ended:
            self._show()
            self._wait(outside, signals)
            for found in outside.drain():
                ended = self._take(found) or ended
            self.state = replace(self.state, at=max(self.state.at, time.time()))
            asked = self._quit or signals.interrupts > 0 or signals.ended is not None
            if asked and stopping is None:
                outside.stop()
                stopping = time.monotonic()
            # without a verdict so far the one of the window that was cut short is waited for
            late = stopping is not None and time.monotonic() - stopping > _PATIENCE_S
            if stopping is not None and (self.last is not None or late or signals.ended is not None):
                ended = ended or "quit"
        return Watched(self.last, self.state, ended, signals.ended)

    def _wait(self, outside: Outside, signals: Signals) -> None:
        sources = [outside.ready, signals.ready]
        keys = self.screen.keys if self.screen is not None and self.screen.taken else None
        if keys is not None:
            sources.append(keys)
        ready, _, _ = select.select(sources, [], [], _EVERY_S)
        signals.drain()
        if keys in ready and keys is not None and self.screen is not None and self.screen.foreground():
            typed = b""
            with contextlib.suppress(OSError):
                typed = os.read(keys, 1024)
            self._quit = self._quit or b"q" in typed or b"Q" in typed
            if not typed:
                self.screen.keys = None  # the terminal has gone

    def _take(self, found: Glance | Verdict | BaseException) -> str:
        """Take in one thing that was seen; returns why the watch ends, or nothing."""
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, Glance):
            now = sample(found)
            self.state = read(self.state, Reading(at=time.time(), gauges=gauges(self._before, now)))
            self._before = now
            return ""
        if not found.python and self.last is None and found.ended != "exit":
            raise no_python(self.target.pid, found.name)
        if found.python:
            self._judge(found)
        return "exit" if found.ended == "exit" else ""

    def _judge(self, found: Verdict) -> None:
        before = self.state.changed
        self.state = judge(self.state, judged(found.diagnosis, found.unix))
        self.last = found.diagnosis
        if self.state.changed > before:
            self._tell(found.diagnosis)

    def _tell(self, diagnosis: LiveDiagnosis) -> None:
        """Say a new verdict where it is not shown."""
        if self._lines is not None:
            try:
                self._lines.write(_json_line(diagnosis))
                self._lines.flush()
            except OSError as error:
                raise UsageError(f"attach: --json: {error.strerror}") from error
        if self._to_stdout:
            say(_json_line(diagnosis))
        elif self.screen is None:
            say(one_line(self.state))

    def _show(self) -> None:
        screen = self.screen
        if screen is None or not screen.foreground():
            return
        screen.take()
        columns, rows = screen.size()
        screen.draw(page(self.state, columns, rows, ascii_only=self._ascii), colour=self._colour)


def _json_line(diagnosis: LiveDiagnosis) -> str:
    import msgspec

    return msgspec.json.encode(diagnosis).decode() + "\n"


def one_line(state: State) -> str:
    """Return the current verdict and since when it holds, as one plain line."""
    now = state.judged
    if now is None:
        return "underfed: no verdict yet"
    cause = f", {now.cause} {now.name}".rstrip() if now.cause else ""
    words = f"{now.key[1]}{cause}, {now.confidence} confidence: {now.text}"
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.since))
    return f"underfed: {at} {clean(words)}"


def ending(watched: Watched, target: Target) -> str:
    """Return the line that tells of the target's end."""
    now = watched.state.judged
    last = "no verdict yet" if now is None else f"last verdict: {now.key[1]}{f' ({now.cause})' if now.cause else ''}"
    if now is not None and watched.state.since is not None:
        last += f" since {time.strftime('%H:%M:%S', time.localtime(watched.state.since))}"
    other = proc.start_and_state(target.pid)
    reused = "; its number now belongs to another process" if other is not None and other[0] != target.start else ""
    return clean(f"underfed: process {target.pid} has ended{reused}; {last}")


def die_by(number: int) -> None:
    """End as the signal would have ended this process."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)

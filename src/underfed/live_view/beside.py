"""`run --live`: follows the recording of a command while it runs and shows it beside the command's own output."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.live_view.draw import page, status
from underfed.live_view.gauges import Sample, gauges, of_line
from underfed.live_view.growing import GrowingRecording
from underfed.live_view.state import Gauge, Reading, State, judge, read
from underfed.live_view.terminal import LastRow, Screen, taste
from underfed.live_view.words import command_words, judged

_EVERY_S = 1.0
#: A verdict every few seconds; further apart where working it out takes more than a fiftieth of that.
_JUDGE_S = 5.0
_COST = 50.0
#: How long a stop waits for a line that is being drawn.
_PATIENCE_S = 1.0
#: No verdict before there are this many steps.
_FEWEST = 10
#: A terminal with fewer rows than this has none to spare.
_ROWS = 4


class Beside:
    """Draws on a row or a screen of its own; made once the command runs. `tick` is called a few times a second."""

    def __init__(self, folder: Path, command: Sequence[str], view: LastRow | Screen) -> None:
        now = time.time()
        self.state = State(title=f"run  {command_words(command)}", began=now, at=now, stepping=True)
        self._view = view
        self._colour, self._ascii = taste()
        self._growing = GrowingRecording(folder)
        self._read_trace = lru_cache(maxsize=16)(read_window)  # a window is traced once, and read once
        self._before: Sample | None = None
        self._next = self._next_verdict = 0.0
        self._size = view.size()
        self._paused = False
        self._drawing = threading.Lock()  # a stop by Ctrl-Z comes on another thread

    def tick(self) -> None:
        """Read on and draw, where it is time to."""
        now = time.monotonic()
        if now < self._next:
            if self._view.size() != self._size:
                self.draw()
            return
        self._next = now + _EVERY_S
        self._read()
        if now >= self._next_verdict and self.state.steps >= _FEWEST:
            self._judge()
        self.draw()

    def _read(self) -> None:
        steps, lines = self._growing.poll()
        found: tuple[Gauge, ...] = ()
        for line in lines:
            sample = of_line(line, self._growing.box)
            if sample is not None:
                found, self._before = gauges(self._before, sample), sample
        self.state = read(self.state, Reading(at=time.time(), steps=tuple(steps), gauges=found))

    def _judge(self) -> None:
        begin = time.monotonic()
        diagnosis = diagnose(self._growing.recording(), self._read_trace)
        if diagnosis.subject.steps:
            self.state = judge(self.state, judged(diagnosis, time.time()))
        took = time.monotonic() - begin
        self._next_verdict = begin + max(_JUDGE_S, _COST * took)

    def draw(self) -> None:
        """Draw what is known; a job in the background, and a terminal without a row to spare, are left alone."""
        with self._drawing:
            if not self._paused and self._view.foreground():
                self._draw()

    def _draw(self) -> None:
        view = self._view
        self._size = columns, rows = view.size()
        if isinstance(view, Screen):
            view.take()
            view.draw(page(self.state, columns, rows, ascii_only=self._ascii), colour=self._colour)
        elif rows >= _ROWS:
            view.take()
            view.draw(status(self.state, columns - 1, ascii_only=self._ascii), colour=self._colour)
        elif view.taken:
            view.give_back()

    def pause(self) -> None:
        """Give the terminal back: before a stop by Ctrl-Z, or for good."""
        self._paused = True
        held = self._drawing.acquire(timeout=_PATIENCE_S)
        self._view.give_back()
        if held:
            self._drawing.release()

    def resume(self) -> None:
        """Draw again from the next tick on."""
        self._paused, self._next = False, 0.0

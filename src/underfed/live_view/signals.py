"""The signals of a view in the foreground: noted by handlers, acted on by the loop, which they wake."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Signals:
    """Holds the handlers while it is entered. `ended` is the signal that asked for the end, `interrupts` counts Ctrl-C.

    `pause` gives the terminal back before Ctrl-Z stops this process. A signal that is ignored stays so (`nohup`).
    A second Ctrl-C raises KeyboardInterrupt, wherever the program is.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self.ready, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self.ended: signal.Signals | None = None
        self.interrupts = 0
        self._pause = pause
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def __enter__(self) -> Signals:
        self._wakeup = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number, act in (
            (signal.SIGINT, self._interrupt),
            (signal.SIGTSTP, self._stop),
            (signal.SIGCONT, _wake_alone),
            (signal.SIGWINCH, _wake_alone),
            (signal.SIGTERM, self._end),
            (signal.SIGHUP, self._end),
        ):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, _handler(act))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)

    def drain(self) -> None:
        """Take notice of what woke the loop."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 4096)

    def _end(self, number: int) -> None:
        self.ended = signal.Signals(number)

    def _interrupt(self, _: int) -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            raise KeyboardInterrupt

    def _stop(self, number: int) -> None:
        self._pause()
        os.kill(os.getpid(), signal.SIGSTOP if number == signal.SIGTSTP else number)


def _wake_alone(number: int) -> None:
    """Nothing to do beyond the wake-up: the loop asks for size and foreground each time."""


def _handler(act: Callable[[int], None]) -> Callable[[int, FrameType | None], None]:
    return lambda number, _: act(number)

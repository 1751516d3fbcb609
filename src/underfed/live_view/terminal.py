"""A terminal that is borrowed for a view and given back as it was, however the view ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import termios
from collections.abc import Sequence
from typing import Any

from underfed.errors import UsageError
from underfed.observe.launch_environment import inherited_environment
from underfed.report.page import Line

#: Terminals that know no cursor.
_DUMB = frozenset({"", "dumb", "unknown", "emacs"})

_ALTERNATE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
_NORMAL = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
#: Gives the last row back to whatever writes to the terminal, without moving the cursor.
_WHOLE = "\x1b7\x1b[r\x1b8"

_GUARD = """# gives the terminal back when the view was killed
import json, os, sys, termios
modes, text = json.loads(sys.argv[1])
if not os.read(0, 1):
    if modes:
        modes[6] = [bytes(c) if isinstance(c, list) else c for c in modes[6]]
        try:
            termios.tcsetattr(1, termios.TCSANOW, modes)
        except termios.error:
            pass
    os.write(1, text.encode())
"""


def moves_cursor(descriptor: int) -> bool:
    """Return whether a descriptor is a terminal on which the cursor can be moved."""
    return os.isatty(descriptor) and os.environ.get("TERM", "").lower() not in _DUMB


def taste() -> tuple[bool, bool]:
    """Return whether to use colours, and whether to keep to ASCII: without colours, and where the locale is not UTF-8.

    Python takes the locale `C` for UTF-8, so the environment is asked as it came.
    """
    given = inherited_environment()
    locale = next((value for name in (b"LC_ALL", b"LC_CTYPE", b"LANG") if (value := given.get(name))), b"")
    colour = not os.environ.get("NO_COLOR")
    return colour, not (colour and b"utf8" in locale.lower().replace(b"-", b""))


def paint(lines: Sequence[Line], *, colour: bool) -> list[str]:
    """Return lines as text with their colours as the terminal understands them."""
    if not colour:
        return ["".join(text for text, _ in line) for line in lines]
    from rich.console import Console
    from rich.text import Text

    console = Console(force_terminal=True, width=10_000, highlight=False, legacy_windows=False)
    painted = []
    for line in lines:
        with console.capture() as capture:
            console.print(Text.assemble(*line), soft_wrap=True, end="")
        painted.append(capture.get())
    return painted


class Terminal:
    """One terminal by its descriptor. `take` prepares it, `give_back` undoes that; both may be called again.

    A small process gives it back where the view cannot, after `kill -9`.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.taken = False
        self._guard: subprocess.Popen[bytes] | None = None

    def size(self) -> tuple[int, int]:
        """Return columns and rows; 80 by 24 where the terminal does not say."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.descriptor)
            if columns > 0 and rows > 0:
                return columns, rows
        return 80, 24

    def foreground(self) -> bool:
        """Return whether the terminal is ours to write to: a job in the background leaves it alone."""
        try:
            return os.tcgetpgrp(self.descriptor) == os.getpgrp()
        except OSError:
            return True  # not our controlling terminal: no job control

    def write(self, text: str) -> bool:
        """Write text as a whole; False where the terminal takes nothing now (Ctrl-S) or is gone."""
        data = text.encode("utf-8", "replace")
        try:
            if not select.select([], [self.descriptor], [], 0)[1]:
                return False
            while data:
                data = data[os.write(self.descriptor, data) :]
        except (OSError, ValueError):
            return False
        return True

    def take(self) -> None:
        """Prepare the terminal."""
        if not self.taken:
            self._watch_over()
            self.taken = True
            self._prepare()

    def give_back(self) -> None:
        """Leave the terminal as it was."""
        if self.taken:
            self._restore()
            self.taken = False
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            with contextlib.suppress(OSError):
                guard.stdin.write(b"q")
            with contextlib.suppress(OSError):
                guard.stdin.close()
            guard.wait()

    def _watch_over(self) -> None:
        if self._guard is not None:
            return
        with contextlib.suppress(OSError):
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _GUARD, json.dumps(self._promise(), default=list)],
                stdin=subprocess.PIPE,
                stdout=self.descriptor,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C or Ctrl-Z of the terminal reaches it
                bufsize=0,
            )

    def _promise(self) -> tuple[list[Any] | None, str]:
        """Return modes and text that give the terminal back."""
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _restore(self) -> None:
        raise NotImplementedError


class Screen(Terminal):
    """The alternate screen: what stood on the terminal comes back in the end. With `keys`, keys come unechoed."""

    def __init__(self, descriptor: int, *, keys: int | None = None) -> None:
        super().__init__(descriptor)
        self.keys = keys
        self._modes: list[Any] | None = None
        if keys is not None:
            with contextlib.suppress(termios.error):
                self._modes = termios.tcgetattr(keys)

    def draw(self, lines: Sequence[Line], *, colour: bool) -> bool:
        """Replace the page; False where it could not be written now."""
        painted = "\r\n".join(f"\x1b[2K{line}" for line in paint(lines, colour=colour))
        return self.write(f"\x1b[H{painted}\x1b[0m\x1b[J")

    def _promise(self) -> tuple[list[Any] | None, str]:
        return self._modes, _NORMAL

    def _prepare(self) -> None:
        if self._modes is not None and self.keys is not None:
            modes = termios.tcgetattr(self.keys)
            modes[3] &= ~(termios.ICANON | termios.ECHO)  # signals stay: Ctrl-C and Ctrl-Z mean what they do
            termios.tcsetattr(self.keys, termios.TCSADRAIN, modes)
        self.write(_ALTERNATE)

    def _restore(self) -> None:
        self.write(_NORMAL)
        if self._modes is not None and self.keys is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.keys, termios.TCSADRAIN, self._modes)


class LastRow(Terminal):
    """The terminal's last row, kept out of the part that scrolls, so that the command's output never meets it.

    Everything else that writes to the terminal goes on above it as before: cursor, colours and progress bars are
    untouched. No mode of the terminal is changed and no key is read.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor)
        self._held: tuple[int, int] | None = None

    def draw(self, line: Line, *, colour: bool) -> bool:
        """Replace the row; takes it anew where the terminal's size has changed."""
        size = self.size()
        text = self._hold(size) if size != self._held else ""
        (painted,) = paint([line], colour=colour)
        row = size[1]
        # one write: what others write cannot come in between
        done = self.write(f"{text}\x1b7\x1b[{row};1H\x1b[0m\x1b[2K{painted}\x1b[0m\x1b8")
        if done:
            self._held = size
        return done

    def _hold(self, size: tuple[int, int]) -> str:
        """Return what frees the last row, by scrolling where the cursor is in it, and lets only the others scroll."""
        return f"\x1bD\x1b[A\x1b7\x1b[1;{size[1] - 1}r\x1b8"

    def _promise(self) -> tuple[list[Any] | None, str]:
        return None, _WHOLE

    def _prepare(self) -> None:
        self._held = None

    def _restore(self) -> None:
        if self._held is not None:
            self.write(f"\x1b7\x1b[{self._held[1]};1H\x1b[0m\x1b[2K\x1b8{_WHOLE}")
            self._held = None


def terminal_of(choice: str) -> LastRow | Screen | None:
    """Return where `run` draws beside its command: None where there is no terminal for it.

    `line` is the last row of the terminal that stderr is. `screen` is the whole terminal, wherever the command's output
    goes; raises UsageError where that is this terminal, since a page would cover what the command writes.
    """
    if choice == "line":
        return LastRow(2) if moves_cursor(2) else None
    try:
        descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.isatty(1) or os.isatty(2):
        os.close(descriptor)
        raise UsageError(
            "run: --live=screen would cover what the command writes to this terminal: send that elsewhere"
            " (... > train.log 2>&1), or take --live"
        )
    if moves_cursor(descriptor):
        return Screen(descriptor)
    os.close(descriptor)
    return None

"""Lines of styled text, and one place that decides between colour and plain."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from underfed.errors import UsageError
from underfed.report.text import cells, wrap

WIDTH = 80

#: A line is spans of (text, rich style); plain output drops the styles.
Line = list[tuple[str, str]]


def plain(lines: Iterable[Line]) -> str:
    """Return lines without their styles, each ended by a newline."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def wants_colour(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that takes colour and Unicode, and nobody asked for none (`NO_COLOR`)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if not (stream.encoding or "").lower().replace("-", "").startswith("utf8"):
        return False
    return stream.isatty()


def show(lines: Iterable[Line], stream: TextIO, *, colour: bool) -> None:
    """Write lines to a stream and flush it; raises OSError or ValueError where the stream is gone."""
    if not colour:
        stream.write(plain(lines))
        stream.flush()
        return
    from rich.console import Console
    from rich.text import Text

    # One string and one write: whatever else writes to this terminal cannot end up inside a line.
    console = Console(file=stream, force_terminal=True, width=WIDTH, highlight=False, legacy_windows=False)
    with console.capture() as capture:
        for line in lines:
            console.print(Text.assemble(*line), soft_wrap=True)
    stream.write(capture.get())
    stream.flush()


def say(text: str) -> None:
    """Write a line, or text that ends in one, to stdout.

    A reader that has gone (`| head`) ends the command quietly, with the status of a SIGPIPE; raises UsageError where
    stdout cannot be written for another reason. A closed stdout (`>&-`) takes nothing, as the user asked.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
        raise SystemExit(128 + 13) from None
    except OSError as error:
        forget_stdout()
        raise UsageError(f"cannot write to stdout: {error.strerror}; free some space or send it elsewhere") from None


def forget_stdout() -> None:
    """Send stdout nowhere, so that what is left in its buffer does not fail once more when the interpreter ends."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def paragraph(text: str, style: str = "", *, first: str = "", rest: str = "", most: int | None = None) -> list[Line]:
    """Return cleaned text as lines within the page, after a first-line lead and an indent for the others."""
    room = WIDTH - max(cells(first), cells(rest))
    broken = wrap(text, room, most=most)
    return [[(first if index == 0 else rest, ""), (line, style)] for index, line in enumerate(broken)]


def command(text: str, style: str = "", *, first: str, rest: str) -> list[Line]:
    """Return a cleaned command within the page; where it breaks between words, a backslash keeps it one command."""
    import shlex

    room = WIDTH - max(cells(first), cells(rest)) - 2
    try:
        # posix=False keeps the quotes, so that the words are shown as they must be typed.
        words = shlex.split(text, posix=False) if "\\" not in text else []
    except ValueError:
        words = []
    if not words or any(cells(word) > room for word in words):
        return paragraph(text, style, first=first, rest=rest)
    lines: list[str] = []
    for word in words:
        if lines and cells(lines[-1]) + 1 + cells(word) <= room:
            lines[-1] += " " + word
        else:
            lines.append(word)
    last = len(lines) - 1
    return [
        [(first if index == 0 else rest, ""), (line if index == last else line + " \\", style)]
        for index, line in enumerate(lines)
    ]

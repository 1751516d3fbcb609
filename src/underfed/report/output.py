"""Where a command's result goes: its page to stdout, and its JSON to a file, or to stdout in place of the page."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from underfed.errors import UsageError
from underfed.report.page import Line, paragraph, plain, say, show, wants_colour
from underfed.report.text import clean


def unchecked(text: str, style: str = "", *, first: str = "", rest: str = "", most: int | None = None) -> list[Line]:
    """Return a paragraph of text that may hold what a program, a path or a file said."""
    return paragraph(clean(text), style, first=first, rest=rest, most=most)


def check_json(command: str, json: Path | None) -> None:
    """Raise UsageError where `--json` names what cannot be a file, before anything is measured for it."""
    if json is None or str(json) == "-":
        return
    if json.is_dir():
        raise UsageError(f"{command}: --json {clean(str(json))}: is a folder; name a file in it")
    if not json.absolute().parent.is_dir():
        raise UsageError(f"{command}: --json {clean(str(json))}: its folder does not exist; create it first")


def put(lines: Iterable[Line]) -> None:
    """Write a page to stdout, in colour where that is a terminal which takes it."""
    if sys.stdout is not None and wants_colour(sys.stdout):
        show(lines, sys.stdout, colour=True)
    else:
        say(plain(lines))


def deliver(command: str, lines: Iterable[Line], data: bytes, json: Path | None) -> None:
    """Write the page, and the JSON where it was asked for; `-` is stdout in place of the page."""
    if str(json) == "-":
        say(data.decode())
        return
    put(lines)
    if json is not None:
        try:
            json.write_bytes(data)
        except OSError as error:
            raise UsageError(f"{command}: cannot write {clean(str(json))}: {error.strerror or error}") from error

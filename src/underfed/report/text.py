"""Text that is safe to print: names come from scripts, traces and folders that nobody checked."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

#: Typographic characters that have a plain twin; all others outside ASCII are shown as Python escapes.
_PLAIN = str.maketrans(
    {
        "\u2018": "'",
        "\u2019": "'",
        "\u201c": '"',
        "\u201d": '"',
        "\u2013": "-",
        "\u2014": "-",
        "\u2212": "-",
        "\u2026": "...",
        "\u00a0": " ",
        "\u00d7": "x",
        "\u00b5": "u",
        "\u03bc": "u",
    }
)


#: Longer than any path; a name that goes on after this is meant to flood a terminal.
_LONGEST = 5000


def clean(text: str, *, ascii_only: bool = True) -> str:
    """Return `text` as one line that cannot steer a terminal.

    Whole escape sequences go, not just their first byte; so do control characters, bidi and other format marks,
    variation selectors, lone surrogates and unassigned code points. Runs of white space become one space.
    With `ascii_only`, what is left outside ASCII is shown as a plain twin or as an escape such as `\\xe9`.
    """
    kept = "".join(_printable(_without_escapes(text[:_LONGEST])))
    line = " ".join(kept.split())
    if ascii_only and not line.isascii():
        line = line.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")
    return line


def cells(text: str) -> int:
    """Return the number of terminal columns that cleaned text takes, never less than it really takes."""
    if text.isascii():
        return len(text)
    return sum(_cell(char) for char in text)


def wrap(text: str, width: int, *, most: int | None = None) -> list[str]:
    """Break one line of cleaned text into lines of at most `width` columns; words longer than a line are cut.

    With `most`, later lines are dropped and the last one kept ends in "...". `width` must be 8 or more.
    """
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        parts = list(_pieces(word, width))
        joined = f"{line} {parts[0]}" if line else parts[0]
        if cells(joined) <= width:
            line = joined
        else:
            lines.append(line)
            line = parts[0]
        for part in parts[1:]:
            lines.append(line)
            line = part
    if line or not lines:
        lines.append(line)
    if most is not None and len(lines) > most:
        lines = lines[:most]
        lines[-1] = _head(lines[-1], width - 3).rstrip() + "..."
    return lines


def shorten_left(text: str, width: int) -> str:
    """Return `text` in at most `width` columns, keeping its end: the file name and the line of a long path."""
    if cells(text) <= width:
        return text
    kept = ""
    for char in reversed(text):
        if cells(char + kept) > width - 3:
            break
        kept = char + kept
    return "..." + kept


def place(where: str, folder: str | None, *, ascii_only: bool, width: int) -> str:
    """Return a file and line as shown from `folder`: relative below it, and cut at the left to `width` columns."""
    if folder is not None and where.startswith(folder.rstrip("/") + "/"):
        where = where[len(folder.rstrip("/")) + 1 :]
    return shorten_left(clean(where, ascii_only=ascii_only), width)


def _cell(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _head(text: str, width: int) -> str:
    return next(_pieces(text, width)) if cells(text) > width else text


def _pieces(word: str, width: int) -> Iterator[str]:
    """Cut a word into parts of at most `width` columns, at least one part."""
    if cells(word) <= width:
        yield word
        return
    part, used = "", 0
    for char in word:
        size = _cell(char)
        if used + size > width:
            yield part
            part, used = "", 0
        part, used = part + char, used + size
    yield part


def _without_escapes(text: str) -> str:
    """Drop terminal sequences: CSI to its final byte, OSC and other strings to their terminator or the line's end."""
    if not any(char in text for char in "\x1b\x90\x98\x9b\x9d\x9e\x9f"):
        return text
    kept: list[str] = []
    at, size = 0, len(text)
    while at < size:
        char = text[at]
        kind = text[at + 1] if char == "\x1b" and at + 1 < size else _C1.get(char, "")
        if char != "\x1b" and not kind:
            kept.append(char)
            at += 1
            continue
        at += 2 if char == "\x1b" else 1
        if kind == "[":
            while at < size and "\x20" <= text[at] <= "\x3f":
                at += 1
            if at < size and "\x40" <= text[at] <= "\x7e":
                at += 1
        elif kind in {"]", "P", "X", "^", "_"}:
            at = _string_end(text, at)
        elif kind and "\x20" <= kind <= "\x2f":
            while at < size and "\x20" <= text[at] <= "\x2f":
                at += 1
            at += 1
    return "".join(kept)


_C1 = {"\x90": "P", "\x98": "X", "\x9b": "[", "\x9d": "]", "\x9e": "^", "\x9f": "_"}


def _string_end(text: str, at: int) -> int:
    for index in range(at, len(text)):
        char = text[index]
        if char in "\x07\x9c":
            return index + 1
        if char == "\x1b":
            return index + 2 if text[index + 1 : index + 2] == "\\" else index
        if char in "\r\n":
            return index
    return len(text)


def _printable(text: str) -> Iterator[str]:
    for char in text:
        if " " <= char <= "~":
            yield char
            continue
        category = unicodedata.category(char)
        if category in {"Zs", "Zl", "Zp"} or char in "\t\n\r\v\f\x85":
            yield " "
        elif category[0] == "C" or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
            continue
        else:
            yield char

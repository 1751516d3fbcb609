"""Finding stamps: the word `verified` with a month or a day, in Markdown, YAML, TOML, JSON, Python or a comment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

#: `verified`, not as a part of another word, then at most `on`, `as of` or `in`, punctuation of Markdown, YAML, TOML,
#: JSON or Python, then the date. The date is the stamp's own: whatever else the line holds is none of its business.
_STAMP = re.compile(
    r"""(?<![\w-])verified(?![\w-])
        (?:[ \t]*["'`*_\]]*)                       # the end of a key or of emphasis
        (?:[ \t]*[:=|,(]|[ \t]+(?:on|in|as[ ]of|at)\b|[ \t]*-(?=[ \t]))?
        [ \t]*["'`*_(\[]*[ \t]*
        (?P<year>\d{4})-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?
        (?![\d-])["'`*_\])]*""",
    re.IGNORECASE | re.VERBOSE,
)
_CLASS = re.compile(r"""[ \t]*,?[ \t]*\((?P<name>[A-Za-z][\w -]{0,40})\)""")
_PROBE = re.compile(r"""(?<![\w-])["']?probe["']?[ \t]*[:=][ \t]*(?P<command>.+)$""", re.IGNORECASE)
_CLASS_KEY = re.compile(
    r"""^[\s#*>-]*["']?class["']?[ \t]*[:=][ \t]*["']?(?P<name>[A-Za-z][\w -]{0,40}?)["']?[ \t]*,?$""", re.I
)
_COMMENT = re.compile(r"^[\s]*(?:#+|//+|--+|[*>+-])?[\s]*")


@dataclass(frozen=True)
class Stamp:
    """A fact with a date. `day` None means the month alone was written; `error` says why the date is none."""

    path: str
    line: int
    fact: str
    written: str
    year: int
    month: int
    day: int | None
    kind: str | None
    probe: str | None
    answer: str | None = None
    error: str | None = None


def find_stamps(path: str, text: str) -> list[Stamp]:
    """Return every stamp in a text, in order. `path` is what to call the file."""
    lines = text.splitlines()
    return [stamp for number, line in enumerate(lines) for stamp in _in_line(path, lines, number, line)]


def _in_line(path: str, lines: list[str], number: int, line: str) -> Iterator[Stamp]:
    for match in _STAMP.finditer(line):
        year, month = int(match["year"]), int(match["month"])
        day = int(match["day"]) if match["day"] else None
        kind = _CLASS.match(line, match.end())
        entry = _entry(lines, number)
        yield Stamp(
            path=path,
            line=number + 1,
            fact=_fact(line, match, kind, entry),
            written=line[match.start("year") : match.end("day") if match["day"] else match.end("month")],
            year=year,
            month=month,
            day=day,
            kind=(kind["name"].strip().lower() if kind else _class_of(entry)),
            probe=_probe_of(entry),
            answer=_value_of(entry),
            error=_impossible(match, year, month, day),
        )


def _impossible(match: re.Match[str], year: int, month: int, day: int | None) -> str | None:
    if len(match["month"]) != 2 or (match["day"] and len(match["day"]) != 2):
        return "is not written as YYYY-MM or YYYY-MM-DD"
    if not 1 <= month <= 12:
        return "is an impossible month"
    if not 2000 <= year <= 2099:
        return "is an impossible year"
    try:
        date(year, month, day or 1)
    except ValueError:
        return "is an impossible day"
    return None


def _entry(lines: list[str], number: int) -> list[str]:
    """Return the lines that belong to the same entry or comment: up to an empty line, another stamp or another item."""
    indent = _indent(lines[number])
    first = number
    while first > 0 and not _begins_item(lines[first]) and _same(lines[first - 1], indent):
        first -= 1
    last = number
    while last + 1 < len(lines) and _same(lines[last + 1], indent) and not _begins_item(lines[last + 1]):
        last += 1
    return lines[first : last + 1]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _begins_item(line: str) -> bool:
    return bool(re.match(r"\s*(?:[-*+]\s|\[|[{}]|\d+\.\s)", line))


def _same(line: str, indent: int) -> bool:
    bare = line.strip()
    if not bare.strip("#/*>") or bare in {"{", "}", "},", "]", "],"} or bare.startswith("["):
        return False
    return abs(_indent(line) - indent) <= 2 and not _STAMP.search(line)


def _probe_of(entry: list[str]) -> str | None:
    for line in entry:
        match = _PROBE.search(line)
        if match:
            return _plain(match["command"])
    return None


def _class_of(entry: list[str]) -> str | None:
    for line in entry:
        match = _CLASS_KEY.match(line)
        if match:
            return match["name"].strip().lower()
    return None


_VALUE = re.compile(r"""^[\s#*>/-]*["']?(?:value|answer)["']?[ \t]*[:=][ \t]*(?P<value>.+)$""", re.IGNORECASE)


def _value_of(entry: list[str]) -> str | None:
    for line in entry:
        match = _VALUE.match(line)
        if match:
            return _plain(match["value"])
    return None


def _plain(text: str) -> str:
    """Take the quotes of TOML, JSON or Python, and a comma behind them, off a value."""
    text = text.strip().removesuffix("-->").strip()
    bare = text.removesuffix(",").rstrip()
    if len(bare) >= 2 and bare[0] == bare[-1] and bare[0] in "\"'":
        try:
            value = ast.literal_eval(bare)
        except (ValueError, SyntaxError):
            return bare[1:-1]
        return value if isinstance(value, str) else bare[1:-1]
    return text.strip("`")


_KEY = re.compile(r"""^[\s#*>{,-]*["']?(?:fact|statement|text|name|id)["']?[ \t]*[:=][ \t]*(?P<value>.+)$""", re.I)


def _fact(line: str, match: re.Match[str], kind: re.Match[str] | None, entry: list[str]) -> str:
    """Return what the stamp stands beside: the rest of its line, or the fact named in its entry, or the line before."""
    end = kind.end() if kind else match.end()
    beside = _PROBE.sub("", line[: match.start()] + " " + line[end:])
    beside = _COMMENT.sub("", beside)
    beside = re.sub(r"<!--|-->", "", beside)
    beside = re.sub(r"\(\s*\)|\[\s*\]", "", beside).strip(" \t\"'`*_,;:|=#({[)}].-")
    if len(beside) > 2:
        return " ".join(beside.split())
    for other in entry:
        named = _KEY.match(other)
        if named:
            return _plain(named["value"])
    others = [_COMMENT.sub("", other).strip() for other in entry if other is not line and other.strip() != line.strip()]
    others = [other for other in others if other and not _PROBE.search(other)]
    return " ".join(others[0].split()) if others else "(no text beside it)"

"""What an audit finds."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

#: certain: the code does this whenever it runs; likely: it does, unless something that is not in the source speaks
#: against it; possible: worth a look. None of them says how much it costs: only a run can.
Sure = Literal["certain", "likely", "possible"]
ORDER: tuple[Sure, ...] = ("certain", "likely", "possible")


def least(*levels: Sure) -> Sure:
    """Return the least sure of some levels."""
    return max(levels, key=ORDER.index)


def lower(level: Sure) -> Sure:
    """Return the next lower level."""
    return ORDER[min(ORDER.index(level) + 1, 2)]


@dataclass(frozen=True)
class Edit:
    """Replace the text between two offsets (characters from the start of the source) by another."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Fix:
    """A change of the source; `safe` where results stay the same to the bit."""

    title: str
    safe: bool
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Hit:
    """What a rule reports: a node, what is wrong with it, how sure, and the fix if there is one."""

    node: ast.AST
    message: str
    sure: Sure
    fix: Fix | None = None


@dataclass(frozen=True, kw_only=True)
class AuditFinding:
    """One finding at its place; lines and columns count from 1, columns in characters. `cell` only in notebooks."""

    rule: str
    name: str
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    message: str
    sure: Sure
    code: str
    why: str
    settle: str
    cell: int | None = None
    source_line: int = 0
    fix: Fix | None = None
    helps_now: bool | None = None
    gain: tuple[float, float] | None = None

    @property
    def key(self) -> tuple[str, int, int, str]:
        """Return what findings are sorted by."""
        return (self.path, self.source_line, self.column, self.rule)


@dataclass(frozen=True)
class Unread:
    """A file that could not be read, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class Unknown:
    """A setting that a rule wanted to judge and whose value is not in the source."""

    path: str
    line: int
    text: str


@dataclass
class Result:
    """Everything that one audit found."""

    findings: list[AuditFinding] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    files: int = 0
    lines: int = 0

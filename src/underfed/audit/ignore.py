"""Comments that silence findings: `# underfed: ignore[T4]` on a finding's first or last line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass, field

from underfed.audit.finding import AuditFinding

_COMMENT = re.compile(r"#\s*underfed:\s*(ignore-file|ignore)\s*(?:\[([^\]]*)\])?", re.IGNORECASE)


@dataclass
class Ignore:
    """One such comment; `rules` is empty where it names none, and then it stands for all."""

    line: int
    column: int
    rules: frozenset[str]
    whole_file: bool
    used: set[str] = field(default_factory=set)

    @property
    def unused(self) -> str | None:
        """Return what of it silences nothing, or None."""
        if not self.rules:
            return None if self.used else "it silences nothing"
        left = sorted(self.rules - self.used)
        return f"nothing to silence for {', '.join(left)}" if left else None


def comments(source: str) -> list[Ignore]:
    """Return the comments of a module (not of strings that look like one)."""
    if "underfed:" not in source:
        return []
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match:
                rules = frozenset(part.strip().upper() for part in (match[2] or "").split(",") if part.strip())
                found.append(Ignore(token.start[0], token.start[1] + 1, rules, match[1].lower() == "ignore-file"))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # what the parser takes and the tokenizer does not: no comments then
    return found


def split(findings: Iterable[AuditFinding], ignores: list[Ignore]) -> list[AuditFinding]:
    """Return the findings that no comment silences; the comments learn what they were used for."""
    kept = []
    for finding in findings:
        last = finding.source_line + finding.end_line - finding.line
        silenced = False
        for one in ignores:
            if (one.whole_file or one.line in (finding.source_line, last)) and (
                not one.rules or finding.rule in one.rules
            ):
                one.used.add(finding.rule)
                silenced = True
        if not silenced:
            kept.append(finding)
    return kept

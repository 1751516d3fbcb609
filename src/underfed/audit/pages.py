"""The rules' docstrings as one page of the docs."""

from __future__ import annotations

import inspect
import re

from underfed.audit.registry import RULES
from underfed.audit.rule import AuditRule


def rules_page() -> str:
    """Return docs/audit-rules.md: a table of all rules, and each rule's text."""
    lines = [
        "# What `underfed audit` looks for",
        "",
        "Generated from the docstrings of `src/underfed/audit/rules/` by `tools/make_docs.py`; edit them there. Ids",
        "that `underfed explain` knows as well are the same pattern, seen in a run.",
        "",
        "| rule | name | what it finds |",
        "|---|---|---|",
    ]
    lines += [f"| [{r.id}](#{r.id.lower()}) | `{r.name}` | {_escaped(r.pattern)} |" for r in RULES]
    for rule in RULES:
        lines += ["", *_section(rule)]
    return "\n".join(lines) + "\n"


def _section(rule: AuditRule) -> list[str]:
    lines = [f"## {rule.id}", "", f"`{rule.name}`: {_escaped(rule.pattern)}"]
    for part in inspect.cleandoc(rule.doc).split("\n\n")[1:]:
        heading, _, body = part.partition("\n")
        lines += ["", f"**{heading}.** {_escaped(' '.join(body.split()))}"]
    return [*lines, "", f"**What a run shows.** {_escaped(rule.settle)}."]


def _escaped(text: str) -> str:
    parts = text.split("`")
    return "`".join(part if at % 2 else re.sub(r"([\\*_<\[\]|])", r"\\\1", part) for at, part in enumerate(parts))

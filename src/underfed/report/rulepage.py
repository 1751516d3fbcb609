"""A rule's docstring as a page: for the terminal, and as Markdown for the docs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from underfed.playbook.figures import lines_of
from underfed.playbook.rule import Rule
from underfed.report.text import wrap
from underfed.report.words import numerics_words

if TYPE_CHECKING:
    from underfed.report.rulebook import Entry

_WIDTH = 80
#: A source line that leaves less room than its next word needs was broken by its width, not on purpose.
_SOURCE_WIDTH = 112
#: A line that begins so stands by itself, however long the one before it is.
_LABELLED = ("plain PyTorch:", "HF Trainer:", "Lightning:")
_HEADING = re.compile(r"^[A-Z][A-Za-z' ]{2,40}$")


def pattern(doc: str) -> str:
    """Return the sentence that states a rule's pattern: the first paragraph of its docstring, as one line."""
    return " ".join(inspect.cleandoc(doc).partition("\n\n")[0].split())


def sections_of(doc: str) -> list[tuple[str, list[str]]]:
    """Return the headed sections behind it: a heading, and its lines, joined where the source broke them by width.

    A heading is a line of words at the left margin; its text is indented. Other text at the margin belongs to no
    section and comes under an empty heading.
    """
    found: list[tuple[str, list[str]]] = []
    for line in inspect.cleandoc(doc).partition("\n\n")[2].splitlines():
        if _HEADING.match(line):
            found.append((line, []))
        else:
            if not found:
                found.append(("", []))
            found[-1][1].append(line)
    return [(heading, _joined(body)) for heading, body in found if heading or any(body)]


def _joined(body: Sequence[str]) -> list[str]:
    lines: list[str] = []
    width = 0
    for raw in body:
        line = raw.strip()
        previous = lines[-1] if lines else ""
        if previous and line and not line.startswith(_LABELLED) and width + 1 + len(line.split()[0]) > _SOURCE_WIDTH:
            lines[-1] = f"{previous} {line}"
        else:
            lines.append(line)
        width = len(raw)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def page(entry: Entry) -> str:
    """Return a rule's page for `underfed explain`, in 80 columns."""
    shown = [f"{entry.id} {entry.name}", *wrap(entry.pattern, _WIDTH), ""]
    shown += [*wrap(facts(entry), _WIDTH), f"found by: {entry.where_seen().replace('`', '')}"]
    numerics = numerics_words(entry.numerics) if entry.numerics else None
    if numerics is not None:
        shown.append(f"note: the fix {numerics}")
    for heading, body in parts(entry):
        shown += ["", heading] if heading else [""]
        for line in body:
            shown += [f"  {part}".rstrip() for part in wrap(line, _WIDTH - 2)]
    return "\n".join(shown) + "\n"


def parts(entry: Entry) -> list[tuple[str, list[str]]]:
    """Return the headed sections of a rule: those of its docstring, then what source code alone says of it."""
    shown = sections_of(entry.doc)
    if figures := lines_of(entry.id):
        shown.append(("Published figures", figures))
    if entry.written is None:
        return shown
    settled = [f"{entry.written.settle}."]
    if entry.seen is None:
        return [*shown, ("What a run shows", settled)]
    quiet = dict(sections_of(entry.written.doc)).get("When it stays silent", [])
    return [
        *shown,
        ("In source code", [pattern(entry.written.doc)]),
        ("When the audit stays silent", quiet),
        ("What a run shows that source cannot", settled),
    ]


def listing(entries: Iterable[Entry]) -> str:
    """Return all rules by stage, each with its id, name and pattern, in 80 columns."""
    shown: list[str] = []
    stage = None
    for entry in entries:
        if entry.stage != stage:
            stage = entry.stage
            shown += ["", f"{stage}"] if shown else [f"{stage}"]
        shown.append(f"  {entry.id:<4} {entry.name}" + ("" if entry.seen else "  (audit)"))
        shown += [f"       {line}" for line in wrap(entry.pattern, _WIDTH - 7)]
    return "\n".join(shown) + "\n"


def facts(entry: Entry) -> str:
    """Return stage, bound where a run decides it, and numerics class in one line."""
    bound = f"; bound: {entry.seen.bound}" if entry.seen else ""
    return f"stage: {entry.stage}{bound}; numerics: {entry.numerics or 'not stated'}"


def markdown(rule: Rule) -> str:
    """Return a rule's section of the docs page."""
    shown = [f"## {rule.id} {rule.name}", "", escaped(pattern(rule.doc)), "", _rule_facts(rule)]
    figures = lines_of(rule.id)
    for heading, body in sections_of(rule.doc) + ([("Published figures", figures)] if figures else []):
        if heading:
            shown += ["", f"### {heading}"]
        shown.append("")
        for place, line in enumerate(body):
            goes_on = bool(line) and place + 1 < len(body) and bool(body[place + 1])
            shown.append(escaped(line) + ("\\" if goes_on else ""))
    return "\n".join(shown) + "\n"


def table(rules: Sequence[Rule]) -> str:
    """Return the table of all rules in Markdown."""
    shown = ["| rule | name | stage | what it finds |", "|---|---|---|---|"]
    for rule in rules:
        sentence = escaped(pattern(rule.doc)).replace("|", "\\|")
        shown.append(f"| {rule.id} | `{rule.name}` | {rule.stage} | {sentence} |")
    return "\n".join(shown) + "\n"


def _rule_facts(rule: Rule) -> str:
    return f"stage: {rule.stage}; bound: {rule.bound}; numerics: {rule.numerics}"


def escaped(line: str) -> str:
    """Escape what Markdown would read as markup, outside of code spans."""
    parts = line.split("`")
    escaped = [part if at % 2 else re.sub(r"([\\*_<\[\]])", r"\\\1", part) for at, part in enumerate(parts)]
    return "`".join(escaped)

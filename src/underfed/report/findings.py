"""The lower half of the card: fixes in order, what is set aside, and the limits of the evidence."""

from __future__ import annotations

from pathlib import Path

from underfed.diagnosis import Finding
from underfed.report.page import WIDTH, Line, command, paragraph
from underfed.report.text import cells, clean, place
from underfed.report.words import gain_words, numerics_words, quantity

#: A card is read at a glance: what is beyond these counts is in the JSON, and the card says so.
MOST_FIXES = 5
MOST_OTHERS = 8
MOST_LIMITS = 8
MOST_EVIDENCE = 5


def fixes(found: list[Finding], said: str, ascii_only: bool) -> list[Line]:
    """Return the findings that help now, in the order given; what `said` holds already is not said again."""
    if not found:
        return []
    page: list[Line] = [[], [("What to do, first things first", "bold")]]
    for number, finding in enumerate(found[:MOST_FIXES], 1):
        page += _fix(number, finding, said, ascii_only)
    if len(found) > MOST_FIXES:
        page.append([(f"  and {len(found) - MOST_FIXES} more in the JSON", "dim")])
    return page


def _fix(number: int, finding: Finding, said: str, ascii_only: bool) -> list[Line]:
    rule, name, summary = (clean(text, ascii_only=ascii_only) for text in (finding.rule, finding.name, finding.summary))
    page = paragraph(f"{rule} {name}", "bold", first=f"  {number}. ", rest="     ", most=2)
    gain, indent = gain_words(finding.gain), "     "
    if cells("".join(text for text, _ in page[-1])) + 2 + len(gain) <= WIDTH:
        page[-1] += [("  ", ""), (gain, "bold green")]
    else:
        page.append([(indent, ""), (gain, "bold green")])
    if finding.where is not None:
        where = place(finding.where, _here(), ascii_only=ascii_only, width=WIDTH - len(indent))
        page.append([(indent, ""), (where, "cyan")])
    if finding.summary not in said:
        page += paragraph(summary, first=indent, rest=indent, most=3)
    for fact in finding.evidence[:MOST_EVIDENCE]:
        text = clean(f"{fact.text}{quantity(fact.value, fact.unit)} [{fact.source}]", ascii_only=ascii_only)
        page += paragraph(text, "dim", first=indent + "- ", rest=indent + "  ", most=2)
    page += paragraph(
        clean(finding.fix.text, ascii_only=ascii_only), first=indent + "fix: ", rest=indent + "  ", most=3
    )
    if finding.fix.code is not None:
        for code in finding.fix.code.splitlines()[:4]:
            kept = code[: len(code) - len(code.lstrip(" "))][:16] + clean(code, ascii_only=ascii_only)
            page.append([(indent + "  ", ""), (_cut(kept, WIDTH - len(indent) - 2), "cyan")])
    if finding.fix.try_ is not None:
        text = clean(finding.fix.try_, ascii_only=ascii_only)
        page += command(text, "cyan", first=indent + "try: ", rest=indent + "  ")
    numerics = numerics_words(finding.numerics)
    if numerics is not None:
        page += paragraph(numerics, "yellow", first=indent + "note: ", rest=indent + "  ")
    return page


def _here() -> str | None:
    """Return the current folder, None where it is gone."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _cut(text: str, width: int) -> str:
    """Return a line of code in at most `width` columns, its indent kept."""
    if cells(text) <= width:
        return text
    while cells(text) > width - 3:
        text = text[:-1]
    return text + "..."


def set_aside(found: list[Finding], ascii_only: bool) -> list[Line]:
    """Return the findings that cannot help now, each with its reason."""
    if not found:
        return []
    page: list[Line] = [[], [("Seen, but no help now", "bold")]]
    for finding in found[:MOST_OTHERS]:
        head = f"{clean(finding.rule, ascii_only=ascii_only)} {clean(finding.name, ascii_only=ascii_only)}"
        if finding.where is not None:
            head += f" at {place(finding.where, _here(), ascii_only=ascii_only, width=40)}"
        reason = finding.note if finding.note is not None else "the reason was not given"
        page += paragraph(f"{head}: {clean(reason, ascii_only=ascii_only)}", first="  - ", rest="    ", most=4)
    if len(found) > MOST_OTHERS:
        page.append([(f"  and {len(found) - MOST_OTHERS} more in the JSON", "dim")])
    return page


def limits(found: list[str], ascii_only: bool) -> list[Line]:
    """Return what the evidence cannot show."""
    if not found:
        return []
    page: list[Line] = [[], [("What this cannot show", "bold")]]
    for limit in found[:MOST_LIMITS]:
        page += paragraph(clean(limit, ascii_only=ascii_only), first="  - ", rest="    ", most=4)
    if len(found) > MOST_LIMITS:
        page.append([(f"  and {len(found) - MOST_LIMITS} more in the JSON", "dim")])
    return page

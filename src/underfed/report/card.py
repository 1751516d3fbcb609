"""The verdict card: what gates the step, where the step goes, and what to do about it, in 80 columns."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from underfed.diagnosis import Diagnosis, Finding, Step, Subject
from underfed.report.budget import Row, rows
from underfed.report.page import WIDTH, Line, command, paragraph, plain, show, wants_colour
from underfed.report.text import cells, clean, place
from underfed.report.words import (
    BOUND_STYLE,
    CONFIDENCE_STYLE,
    bound_words,
    count,
    finite,
    gain_words,
    gloss,
    has_gpu,
    milliseconds,
    numerics_words,
    quantity,
)

#: A card is read at a glance: what is beyond these counts is in the JSON, and the card says so.
MOST_FIXES = 5
MOST_OTHERS = 8
MOST_LIMITS = 8
MOST_EVIDENCE = 5

_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def render(diagnosis: Diagnosis, *, recording: str | None = None) -> str:
    """Return the card as plain ASCII text. `recording` is where the run was recorded, if anywhere."""
    return plain(lines(diagnosis, recording=recording, colour=False))


def write(diagnosis: Diagnosis, stream: TextIO, *, recording: str | None = None) -> None:
    """Write the card to a stream: in colour on a terminal, plain ASCII elsewhere and under `NO_COLOR`.

    Raises OSError or ValueError where the stream is closed or cannot be written.
    """
    colour = wants_colour(stream)
    show(lines(diagnosis, recording=recording, colour=colour), stream, colour=colour)


def lines(diagnosis: Diagnosis, *, recording: str | None, colour: bool) -> list[Line]:
    """Return the card as styled lines; with `colour`, names keep their Unicode and bars are drawn in eighths."""
    ascii_only = not colour
    page = _verdict(diagnosis, ascii_only)
    page += [[], *_budget(diagnosis.step, diagnosis.subject, ascii_only)]
    page += _fixes([finding for finding in diagnosis.findings if finding.helps_now], diagnosis.verdict.text, ascii_only)
    page += _others([finding for finding in diagnosis.findings if not finding.helps_now], ascii_only)
    page += _limits(diagnosis.limits, ascii_only)
    if recording is not None:
        page.append([])
        page += paragraph(clean(recording, ascii_only=ascii_only), "cyan", first="Recording: ", rest="  ")
    return page


def _verdict(diagnosis: Diagnosis, ascii_only: bool) -> list[Line]:
    verdict = diagnosis.verdict
    words = bound_words(verdict.bound, diagnosis.subject)
    head: Line = [("underfed: ", "bold"), (words, BOUND_STYLE[verdict.bound]), (f" ({gloss(verdict.bound)}), ", "")]
    head.append((f"{verdict.confidence} confidence", CONFIDENCE_STYLE[verdict.confidence]))
    page = [head]
    if verdict.cause is not None:
        cause = clean(verdict.cause, ascii_only=ascii_only)
        name = next((finding.name for finding in diagnosis.findings if finding.rule == verdict.cause), "")
        page += paragraph(
            f"{cause} {clean(name, ascii_only=ascii_only)}".strip(), "bold", first="cause: ", rest="  ", most=2
        )
    page += paragraph(clean(verdict.text, ascii_only=ascii_only), most=6)
    if verdict.settle is not None:
        settle = clean(verdict.settle, ascii_only=ascii_only)
        shape = command if settle.startswith("underfed ") else paragraph
        page += shape(settle, "cyan", first="To settle it: ", rest="  ")
    return page


def _budget(step: Step, subject: Subject, ascii_only: bool) -> list[Line]:
    page = paragraph(_title(step, subject, ascii_only), "bold", rest="  ", most=3)
    budget = rows(step, gpu=has_gpu(subject))
    number = max(len(row.ms) for row in budget)
    page += [_budget_row(row, number, ascii_only) for row in budget]
    parts = [
        f"{milliseconds(value)} {what}"
        for value, what in (
            (step.compute_ms, "compute"),
            (step.copy_ms, "copies"),
            (step.comms_ms, "communication"),
            (step.exposed_comms_ms, "of it not covered by compute"),
        )
        if finite(value) is not None
    ]
    if parts and has_gpu(subject):
        page += paragraph(f"device: {', '.join(parts)}", "dim", first="  ", rest="    ")
    return page


def _title(step: Step, subject: Subject, ascii_only: bool) -> str:
    on = "" if subject.device is None else f" on {clean(subject.device, ascii_only=ascii_only)}"
    steps = "1 step" if subject.steps == 1 else f"{count(subject.steps)} steps"
    warmup = "" if subject.warmup_steps is None else f", {count(subject.warmup_steps)} left out as warm-up"
    ranks = "" if subject.ranks is None or subject.ranks == 1 else f", {count(subject.ranks)} ranks"
    return f"A step takes {milliseconds(step.ms)}{on} ({steps}{warmup}{ranks})"


def _budget_row(row: Row, number: int, ascii_only: bool) -> Line:
    style = "bold" if row.label == "step" else ""
    figures = f"{row.ms:>{number}} ms  {row.percent:>5} %"
    lead = f"  {row.label:<9}  "
    room = WIDTH - cells(lead) - cells(figures) - 28 - 4
    return [
        (lead, style or "bold"),
        (f"{row.meaning:<28}  ", "dim"),
        (figures, style),
        ("  " + _bar(row.share, room, ascii_only), _bar_style(row.label)),
    ]


def _bar(share: float, room: int, ascii_only: bool) -> str:
    eighths = round(share * room * 8)
    if ascii_only:
        return "#" * max(round(share * room), 1 if share >= 0.01 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8]


def _bar_style(label: str) -> str:
    return {"device": "green", "data": "yellow", "transfer": "yellow", "comms": "blue"}.get(label, "magenta")


def _fixes(findings: list[Finding], said: str, ascii_only: bool) -> list[Line]:
    if not findings:
        return []
    page: list[Line] = [[], [("What to do, first things first", "bold")]]
    for number, finding in enumerate(findings[:MOST_FIXES], 1):
        page += _fix(number, finding, said, ascii_only)
    if len(findings) > MOST_FIXES:
        page.append([(f"  and {len(findings) - MOST_FIXES} more in the JSON", "dim")])
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


def _others(findings: list[Finding], ascii_only: bool) -> list[Line]:
    if not findings:
        return []
    page: list[Line] = [[], [("Seen, but no help now", "bold")]]
    for finding in findings[:MOST_OTHERS]:
        head = f"{clean(finding.rule, ascii_only=ascii_only)} {clean(finding.name, ascii_only=ascii_only)}"
        if finding.where is not None:
            head += f" at {place(finding.where, _here(), ascii_only=ascii_only, width=40)}"
        reason = finding.note if finding.note is not None else "the reason was not given"
        page += paragraph(f"{head}: {clean(reason, ascii_only=ascii_only)}", first="  - ", rest="    ", most=4)
    if len(findings) > MOST_OTHERS:
        page.append([(f"  and {len(findings) - MOST_OTHERS} more in the JSON", "dim")])
    return page


def _limits(limits: list[str], ascii_only: bool) -> list[Line]:
    if not limits:
        return []
    page: list[Line] = [[], [("What this cannot show", "bold")]]
    for limit in limits[:MOST_LIMITS]:
        page += paragraph(clean(limit, ascii_only=ascii_only), first="  - ", rest="    ", most=4)
    if len(limits) > MOST_LIMITS:
        page.append([(f"  and {len(limits) - MOST_LIMITS} more in the JSON", "dim")])
    return page

"""The verdict card: what gates the step, where the step goes, and what to do about it, in 80 columns."""

from __future__ import annotations

from typing import TextIO

from underfed.diagnosis import Diagnosis, Step, Subject
from underfed.report import findings
from underfed.report.budget import Row, rows
from underfed.report.page import WIDTH, Line, command, paragraph, plain, show, wants_colour
from underfed.report.text import cells, clean
from underfed.report.words import (
    BOUND_STYLE,
    CONFIDENCE_STYLE,
    bound_words,
    count,
    device_words,
    finite,
    gloss,
    has_gpu,
    milliseconds,
    step_words,
)

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


def lines(
    diagnosis: Diagnosis,
    *,
    recording: str | None,
    colour: bool,
    middle: list[Line] | None = None,
    head: str | None = None,
) -> list[Line]:
    """Return the card as styled lines; with `colour`, names keep their Unicode and bars are drawn in eighths.

    `middle` stands in for the budget of a step where no step was timed, `head` for the bound where it says more.
    """
    ascii_only = not colour
    page = _verdict(diagnosis, ascii_only, head)
    page += [[], *(_budget(diagnosis, ascii_only) if middle is None else middle)]
    page += findings.fixes([each for each in diagnosis.findings if each.helps_now], diagnosis.verdict.text, ascii_only)
    page += findings.set_aside([each for each in diagnosis.findings if not each.helps_now], ascii_only)
    page += findings.limits(diagnosis.limits, ascii_only)
    if recording is not None:
        page.append([])
        page += paragraph(clean(recording, ascii_only=ascii_only), "cyan", first="Recording: ", rest="  ")
    return page


def _verdict(diagnosis: Diagnosis, ascii_only: bool, head: str | None) -> list[Line]:
    verdict = diagnosis.verdict
    words = head or f"{bound_words(verdict.bound, diagnosis.subject)} ({gloss(verdict.bound)})"
    bound, _, meaning = words.partition(" (")
    meaning = f" ({meaning}, " if meaning else ", "
    first: Line = [("underfed: ", "bold"), (bound, BOUND_STYLE[verdict.bound]), (meaning, "")]
    first.append((f"{verdict.confidence} confidence", CONFIDENCE_STYLE[verdict.confidence]))
    page = [first]
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


def _budget(diagnosis: Diagnosis, ascii_only: bool) -> list[Line]:
    step, subject = diagnosis.step, diagnosis.subject
    page = paragraph(_title(step, subject, ascii_only), "bold", rest="  ", most=3)
    budget = rows(step, device=device_words(subject), clock=step_words(diagnosis))
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
    warmup = f", {count(subject.warmup_steps)} left out as warm-up"
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

"""The first verdict, shown while the run goes on: at most four lines."""

from __future__ import annotations

from typing import TextIO

from underfed.diagnosis import Diagnosis
from underfed.report.page import Line, paragraph, plain, show, wants_colour
from underfed.report.text import cells, clean
from underfed.report.words import BOUND_STYLE, bound_words, count, finite, milliseconds, percent


def render(diagnosis: Diagnosis) -> str:
    """Return the first verdict as two to four lines of plain ASCII text."""
    return plain(lines(diagnosis, colour=False))


def write(diagnosis: Diagnosis, stream: TextIO) -> None:
    """Write the first verdict to a stream, in colour on a terminal; raises OSError or ValueError where it is gone."""
    colour = wants_colour(stream)
    show(lines(diagnosis, colour=colour), stream, colour=colour)


def lines(diagnosis: Diagnosis, *, colour: bool) -> list[Line]:
    """Return the verdict, its sentence in two lines at most, and the largest parts of the step."""
    verdict, subject, step = diagnosis.verdict, diagnosis.subject, diagnosis.step
    words = bound_words(verdict.bound, subject)
    cause = clean(verdict.cause or "", ascii_only=not colour)
    cause = f" ({cause})" if 0 < cells(cause) <= 6 else ""
    head: Line = [
        (f"underfed: first look, {count(subject.steps)} steps: ", ""),
        (words, BOUND_STYLE[verdict.bound]),
        (f"{cause}, {verdict.confidence} confidence", ""),
    ]
    page = [head, *paragraph(clean(verdict.text, ascii_only=not colour), first="  ", rest="  ", most=2)]
    parts = {"device": step.device_ms, **{name: getattr(step.wait_ms, name) for name in step.wait_ms.__struct_fields__}}
    known = [(finite(value) or 0.0, name) for name, value in parts.items()]
    largest = sorted((pair for pair in known if pair[0] > 0), key=lambda pair: -pair[0])[:3]
    if finite(step.ms) is not None and largest:
        shares = ", ".join(f"{name} {percent(value, step.ms)}" for value, name in largest)
        page += paragraph(f"{milliseconds(step.ms)} a step: {shares}", "dim", first="  ", rest="  ", most=1)
    return page

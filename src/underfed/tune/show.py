"""What `underfed tune` prints."""

from __future__ import annotations

from underfed.report.output import unchecked
from underfed.report.page import Line
from underfed.report.words import milliseconds
from underfed.tune.records import Point, Tuning
from underfed.tune.search import megabytes

_STYLE = {"better": "bold green", "keep": "yellow", "nothing": "bold red"}


def tuning_lines(found: Tuning) -> list[Line]:
    """Return the page of a search: the curve, the choice, the reason and the line."""
    lines: list[Line] = []
    where = f" on {found.device}" if found.device else ""
    cpus = f", {found.cpus:g} CPUs" if found.cpus else ""
    room = f", room for {megabytes(found.memory_limit)}" if found.memory_limit else ""
    lines += unchecked(f"The script as it is: {milliseconds(found.base_ms)} a step{where}{cpus}{room}")
    if found.points:
        lines += [[("", "")], [(f"{'setting':<30}{'predicted':>10}{'measured':>10}  interval, memory", "bold")]]
    for point in found.points:
        lines += _point(point, chosen=point.name == found.choice)
    lines += [[("", "")]]
    head = {"better": f"Choice: {found.choice}", "keep": "Keep what you have", "nothing": "Nothing was measured"}
    gain = ""
    if found.gain is not None:
        gain = f", {found.gain.value:.2f}x as fast ({found.gain.low:.2f}x to {found.gain.high:.2f}x)"
    lines += unchecked(head[found.chosen] + gain, _STYLE[found.chosen])
    lines += unchecked(f"because {found.reason}", first="  ", rest="  ")
    if found.line:
        lines += unchecked(f"{found.where or 'in the script'}: {found.line}", "bold", first="  ", rest="    ")
    truth = next((point.truth for point in found.points if point.name == found.choice), None)
    if truth is not None:
        verdict = {True: "true", False: "NOT TRUE", None: "cannot tell"}[truth.ok]
        lines += unchecked(f"numbers: {verdict} ({truth.numerics}): {truth.text}", first="  ", rest="    ")
    if found.limits:
        lines += [[("", "")], [("What this cannot show", "bold")]]
        for limit in found.limits:
            lines += unchecked(limit, first="  - ", rest="    ")
    lines += [[("", "")]]
    lines += unchecked(f"{found.spent_s:.0f} of {found.budget_s:g} s; runs, with their output: {found.folder}")
    return lines


def _point(point: Point, *, chosen: bool) -> list[Line]:
    memory = f", {megabytes(point.memory)}" if point.memory else ""
    seen = "-" if point.step_ms is None else f"{point.step_ms:.3g}"
    expected = "-" if point.predicted_ms is None else f"{point.predicted_ms:.3g}"
    if point.low_ms is not None and point.high_ms is not None:
        rest = f"{point.low_ms:.3g} to {point.high_ms:.3g}{memory}"
    else:
        rest = ""
    lines: list[Line] = [[(f"{point.name:<30}{expected:>10}{seen:>10}  {rest}", "bold" if chosen else "")]]
    if point.outcome != "measured" or (point.truth is not None and point.truth.ok is False):
        lines += unchecked(point.text, "red", first="    ", rest="    ")
    for text in point.output[-3:]:
        lines += unchecked(text, first="    | ", rest="    | ", most=1)
    return lines

"""What `underfed compare` prints."""

from __future__ import annotations

from underfed.compare.records import Comparison, Fact, Part, Side
from underfed.diagnosis import Subject
from underfed.report.output import unchecked
from underfed.report.page import Line
from underfed.report.words import bound_words, milliseconds

_STYLE = {"faster": "green", "slower": "red", "no-change": "yellow", "undecided": "bold yellow"}
#: Parts that are, and change by, less than these shares of the step are summed up in one row.
_SMALL, _STILL = 0.02, 0.005


def comparison_lines(found: Comparison) -> list[Line]:
    """Return the page: first whether the same work was done, then the ratio, the bounds and the budget."""
    lines = [*_work(found), [("", "")]]
    lines += unchecked(found.text, _STYLE[found.outcome])
    lines += [[("", "")]]
    device = next((fact for fact in found.facts if fact.name == "device"), None)
    lines += _side("A", found.a, device.a if device else None) + _side("B", found.b, device.b if device else None)
    lines += [[("", "")], *_parts(found)]
    settings = [fact for fact in found.facts if not fact.work and fact.same != "same"]
    if settings:
        lines += [[("", "")], [("Not alike", "bold")]]
        for fact in settings:
            lines += unchecked(_both(fact), first="  - ", rest="    ")
    if found.limits:
        lines += [[("", "")], [("What this cannot show", "bold")]]
        for limit in found.limits:
            lines += unchecked(limit, first="  - ", rest="    ")
    return lines


def _work(found: Comparison) -> list[Line]:
    different = [fact for fact in found.facts if fact.work and fact.same == "different"]
    missing = [fact.name for fact in found.facts if fact.work and fact.same == "not-known"]
    if different:
        lines = unchecked("NOT THE SAME WORK: the step times cannot be held against each other", "bold red")
        for fact in different:
            lines += unchecked(_both(fact), first="  - ", rest="    ")
    elif found.work == "same":
        lines = unchecked("The same work, as far as it was recorded", "bold")
    else:
        lines = unchecked("Whether it was the same work is not known in full", "bold yellow")
    if missing:
        lines += unchecked(f"not known: {', '.join(missing)}", first="  ", rest="    ")
    return lines


def _both(fact: Fact) -> str:
    return f"{fact.name}: {fact.a or 'not known'} in A, {fact.b or 'not known'} in B"


def _side(name: str, side: Side, device: str | None) -> list[Line]:
    bound = bound_words(side.bound, Subject(kind="run", paths=[], device=device))
    runs = f"{side.runs} runs, " if side.runs > 1 else ""
    cause = f" ({side.cause})" if side.cause else ""
    text = f"{milliseconds(side.step_ms)} a step, {bound}{cause}, {runs}{side.steps or '?'} steps: {side.path}"
    return unchecked(text, first=f"{name}  ", rest="   ")


def _parts(found: Comparison) -> list[Line]:
    whole = max(found.a.step_ms or 0.0, found.b.step_ms or 0.0)
    lines: list[Line] = [[(f"{'ms a step':<18}{'A':>10}{'B':>10}{'change':>10}", "bold")]]
    small = [part for part in found.parts if _is_small(part, whole)]
    lines += [[(_row(part), "")] for part in found.parts if part not in small]
    if small:
        a, b = sum(part.a or 0.0 for part in small), sum(part.b or 0.0 for part in small)
        lines.append([(_row(Part(name=f"{len(small)} others", a=a, b=b, change=b - a)), "")])
    return lines


def _is_small(part: Part, whole: float) -> bool:
    if part.a is None or part.b is None:
        return False
    return max(part.a, part.b) < _SMALL * whole and abs(part.b - part.a) < _STILL * whole


def _row(part: Part) -> str:
    return f"{part.name:<18}{_cell(part.a)}{_cell(part.b)}{_cell(part.change, '+')}"


def _cell(value: float | None, sign: str = "") -> str:
    return f"{'?':>10}" if value is None else f"{value:{sign}10.3f}" if abs(value) < 1000 else f"{value:{sign}10.0f}"

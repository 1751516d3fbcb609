"""The budget of a step as rows that add up to the step, to the last digit shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from underfed.diagnosis import Step
from underfed.report.words import finite

_WAITS = ("data", "transfer", "sync", "launch", "stall", "comms", "other")
_MEANING = {
    "data": "waiting for the next batch",
    "transfer": "copying input to the device",
    "sync": "a sync emptied the queue",
    "launch": "host too slow to launch work",
    "stall": "logging, checkpoints, pauses",
    "comms": "exchange between ranks",
    "other": "not accounted for",
    "not split": "in the rows marked ?",
    "overlap": "counted in two rows above",
}


#: Steps shorter than this many ms do not exist: one call of an optimizer takes longer.
_SHORTEST = 0.001


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: a label, what it means, ms and percent as shown (`?` where not known), and its share for the bar."""

    label: str
    meaning: str
    ms: str
    percent: str
    share: float


def rows(step: Step, *, device: str, clock: str) -> list[Row]:
    """Return the rows of a step's budget, the step itself last; `device` says what device time is here, `clock` by what
    the step is known.

    The shown figures of the rows add up to the shown step. What the known rows leave over goes to `other`, or to a row
    `not split` where rows are unknown; what they exceed the step by is a negative row `overlap`. Where the step itself
    is unknown, nothing can add up and all percents are `?`.
    """
    values: list[tuple[str, float | None]] = [("device", finite(step.device_ms))]
    values += [(name, finite(getattr(step.wait_ms, name))) for name in _WAITS]
    total = finite(step.ms)
    if total is None or total < _SHORTEST:
        shown = [(label, "?" if value is None else f"{value:.3f}") for label, value in values]
        unknown = [_row(label, ms, "?", 0.0, device) for label, ms in shown]
        return [*unknown, _row("step", "?", "?", 0.0, clock)]
    # A part that is a hundred times its whole was not measured by any clock.
    values = [(label, None if value is None or abs(value) > 100 * total else value) for label, value in values]
    quantum_digits = 0 if total >= 10_000 else 1 if total >= 10 else 2 if total >= 1 else 3
    values = _balanced(values, total, min(10.0**-quantum_digits, total / 1000))
    known = [value for _, value in values if value is not None]
    ms = iter(_apportion(known, total, quantum_digits))
    shares = iter(_apportion([100 * value / total for value in known], 100.0, 1))
    result = []
    for label, value in values:
        if value is None:
            result.append(_row(label, "?", "?", 0.0, device))
        else:
            result.append(_row(label, next(ms), next(shares), value / total, device))
    result.append(_row("step", f"{total:.{quantum_digits}f}", "100.0", 0.0, clock))
    return result


def _row(label: str, ms: str, percent: str, share: float, says: str) -> Row:
    return Row(label=label, meaning=_MEANING.get(label, says), ms=ms, percent=percent, share=min(1.0, max(0.0, share)))


def _balanced(values: list[tuple[str, float | None]], total: float, quantum: float) -> list[tuple[str, float | None]]:
    """Return the rows with what is left over, or counted twice, put where it can be seen."""
    left = total - math.fsum(value for _, value in values if value is not None)
    if left >= quantum:
        if any(value is None for _, value in values):
            return [*values, ("not split", left)]
        return [(label, value + left if label == "other" and value is not None else value) for label, value in values]
    if left <= -quantum:
        return [*values, ("overlap", left)]
    return values


def _apportion(values: Sequence[float], total: float, digits: int) -> list[str]:
    """Round values that add up to `total`, each by less than about one unit, so that the rounded ones add up too."""
    if not values:
        return []
    scale = 10**digits
    exact = [value * scale for value in values]
    whole = [math.floor(value) for value in exact]
    missing = round(total * scale) - sum(whole)
    # Largest remainder first; the order is by remainder alone, so equal rows keep their order.
    order = sorted(range(len(values)), key=lambda index: whole[index] - exact[index])
    for turn in range(abs(missing)):
        index = order[turn % len(order)] if missing > 0 else order[-1 - turn % len(order)]
        whole[index] += 1 if missing > 0 else -1
    return [f"{count / scale:.{digits}f}" for count in whole]

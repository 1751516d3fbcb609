"""What a report is made of: sections that hold charts, each with the table of its figures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: A cell is text, or a number with its digits already rounded; None is shown as `?`.
Cell = str | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """The figures behind a chart as text. `names` are the columns that hold names from the run, shown as code."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    names: frozenset[int] = frozenset()
    #: One share (0 to 1) a row, drawn as a bar behind the first column.
    bars: list[float] | None = None
    #: The first column in full, where it is shortened: shown when the pointer rests on it.
    full: list[str] | None = None
    #: A stacked bar at the end of each row: class and share (0 to 1) of the longest row.
    stacks: list[list[tuple[str, float]]] | None = None
    caption: str = ""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart: what it shows in a sentence, its Vega-Lite specification (None where a table says it all)."""

    id: str
    title: str
    says: str
    table: Table
    spec: dict[str, Any] | None = None
    #: Classes of time that are drawn, for the legend: (class, label).
    legend: tuple[tuple[str, str], ...] = ()
    zoom: bool = False
    #: Whether the table stays open beside the chart.
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of the report. Without charts, `missing` says why there is nothing to see."""

    id: str
    title: str
    charts: list[Chart] = field(default_factory=list)
    missing: str | None = None
    notes: list[str] = field(default_factory=list)


def number(value: float | None, digits: int = 3) -> Cell:
    """Return a figure with so many significant digits and no exponent, None where it is not known."""
    from underfed.report.words import finite

    known = finite(value)
    if known is None:
        return None
    if known == 0:
        return "0"
    size = abs(known)
    whole = 1
    while size >= 10:
        size, whole = size / 10, whole + 1
    if abs(known) < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}" if known > 0 else "0"
    return f"{known:.{max(0, digits - whole) if abs(known) >= 1 else digits}f}"

"""The steps as they ran: what each took, and what the training thread was at meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median

from underfed.pictures import specs
from underfed.pictures.material import Material
from underfed.pictures.palette import LABELS
from underfed.pictures.shapes import Chart, Section, Table, number
from underfed.recording import records as r
from underfed.recording.read import ProcessLog
from underfed.timeline.facts import TraceFacts

_EMPTY = Section(id="steps", title="Steps as they ran")

_AT = {name: at for at, name in enumerate(r.STEP_COLUMNS)}
_MS = 1e-6
#: Regions of the training thread by the class of time that they are drawn as.
REGION_CLASSES: dict[str, tuple[str, ...]] = {
    "data": ("data", "start"),
    "transfer": ("h2d",),
    "sync": ("d2h", "sync"),
    "stall": ("eval", "gc", "cache"),
    "comms": ("comms",),
    "device": ("backward", "optimizer"),
    "other": ("pre", "mid", "post"),
}
_HERE = {
    "device": "backward and optimizer",
    "stall": "stalls: checkpoints, validation, logging, pauses",
    "other": "forward and other Python code",
}
#: More steps than this are drawn as means of neighbours, with the longest of each marked.
MOST_DRAWN = 600
#: A step this many times as long as the median stands out.
LONG = 1.5
_TABLE_ROWS = 60


@dataclass(frozen=True)
class Shown:
    """One step: its number, seconds since the first one, ms, ms by class, and what marks it."""

    number: int
    at: float
    ms: float
    parts: dict[str, float]
    epoch: bool = False
    traced: bool = False


def of_log(log: ProcessLog) -> list[Shown]:
    """Return all steps of a process, of the boundary that it has most of."""
    rows = log.step_rows()
    if not rows:
        return []
    kinds = [row[_AT["kind"]] for row in rows]
    kind = max(set(kinds), key=kinds.count)
    rows = [row for row in rows if row[_AT["kind"]] == kind]
    begin = rows[0][_AT["end"]] - rows[0][_AT["wall"]]
    return _with_stalls(
        [
            Shown(
                number=at,
                at=(row[_AT["end"]] - row[_AT["wall"]] - begin) * 1e-9,
                ms=row[_AT["wall"]] * _MS,
                parts={name: sum(row[_AT[one]] for one in many) * _MS for name, many in REGION_CLASSES.items()},
                epoch=bool(row[_AT["flags"]] & r.NEW_EPOCH),
                traced=bool(row[_AT["flags"]] & r.TRACED),
            )
            for at, row in enumerate(rows)
        ]
    )


def _with_stalls(steps: list[Shown]) -> list[Shown]:
    """Name what makes a long step long: Python code between the timed calls beyond its usual time is a stall."""
    usual, rest = median(step.ms for step in steps), median(step.parts["other"] for step in steps)
    found = []
    for step in steps:
        over = step.parts["other"] - rest
        if step.ms > LONG * usual and over > 0.2 * step.ms:
            parts = {**step.parts, "other": rest, "stall": step.parts["stall"] + over}
            found.append(replace(step, parts=parts))
        else:
            found.append(step)
    return found


def of_trace(facts: TraceFacts) -> list[Shown]:
    """Return the steps that a trace marks: device time of what each launched, and the rest of its wall time."""
    found, at = [], 0.0
    for step in facts.steps:
        wall = step.wall_ns * _MS
        work = min(step.work.busy_ns * _MS, wall)
        found.append(Shown(step.number, at, wall, {"device": work, "other": wall - work}))
        at += wall / 1000
    return found


def section(material: Material) -> Section:
    """Return the section about the steps."""
    if material.log is not None:
        steps = of_log(material.log)
    elif material.facts is not None:
        steps = of_trace(material.facts)
    else:
        return replace(_EMPTY, missing="A saved diagnosis holds means only, not the steps themselves.")
    if len(steps) < 2:
        return replace(_EMPTY, missing="Fewer than two steps are marked in it.")
    traced_only = material.log is None
    labels = {**LABELS, **_HERE} if not traced_only else {**LABELS, "other": "device idle"}
    used = [name for name in REGION_CLASSES if any(step.parts.get(name, 0.0) > 0.002 * step.ms for step in steps)]
    chart = Chart(
        id="steps-chart",
        title="Time of each step, by what the training thread was at" if not traced_only else "Time of each step",
        says=_says(steps, traced_only),
        spec=specs.stacked(_drawn(steps, used, labels), tuple(used), labels, what="step", marks=_marks(steps)),
        legend=tuple((name, labels[name]) for name in used),
        table=_table(steps, used, labels),
        zoom=True,
    )
    return replace(_EMPTY, charts=[chart], notes=_notes(steps))


def _says(steps: list[Shown], traced_only: bool) -> str:
    walls = [step.ms for step in steps if not step.traced] or [step.ms for step in steps]
    middle = median(walls)
    long = sum(wall > LONG * middle for wall in walls)
    said = f"{len(steps)} steps, median {number(middle)} ms, longest {number(max(walls))} ms"
    said += f"; {long} took more than {LONG} times the median." if long else "; none stands out."
    return said if not traced_only else said + " The profiler was running: it makes steps longer."


def _notes(steps: list[Shown]) -> list[str]:
    notes = []
    borders = sum(step.epoch for step in steps)
    if borders > 1:
        notes.append(f"Thin lines: {borders} passes over the data begin there (a new iterator of the loader).")
    if any(step.traced for step in steps):
        notes.append("Shaded: steps that were traced. They are slower for it, and no figure rests on their length.")
    return notes


def _marks(steps: list[Shown]) -> dict[str, list[float]]:
    traced = [step.number for step in steps if step.traced]
    return {
        "epochs": [float(step.number) for step in steps if step.epoch and step.number][:500],
        "traced": [traced[0] - 0.5, traced[-1] + 0.5] if traced else [],
    }


def _buckets(steps: list[Shown], most: int) -> list[list[Shown]]:
    size = -(-len(steps) // most)
    return [steps[at : at + size] for at in range(0, len(steps), size)]


def _drawn(steps: list[Shown], used: list[str], labels: dict[str, str]) -> list[dict[str, object]]:
    """Return one row a step, or a bucket of steps, with one field a class."""
    rows: list[dict[str, object]] = []
    for bucket in _buckets(steps, MOST_DRAWN):
        first, last = bucket[0].number, bucket[-1].number
        row: dict[str, object] = {
            "step": first,
            "to": last + 1,
            "shown": f"{first}" if first == last else f"{first} to {last}",
            "ms": round(fmean(one.ms for one in bucket), 4),
            "longest": round(max(one.ms for one in bucket), 4),
        }
        for name in used:
            row[labels[name]] = round(fmean(one.parts.get(name, 0.0) for one in bucket), 4)
        rows.append(row)
    return rows


def _table(steps: list[Shown], used: list[str], labels: dict[str, str]) -> Table:
    rows = []
    for bucket in _buckets(steps, _TABLE_ROWS):
        first, last = bucket[0].number, bucket[-1].number
        means = [number(fmean(one.parts.get(name, 0.0) for one in bucket)) for name in used]
        rows.append(
            (
                f"{first}" if first == last else f"{first} to {last}",
                number(fmean(one.ms for one in bucket)),
                number(max(one.ms for one in bucket)),
                *means,
            )
        )
    return Table(
        columns=("steps", "mean ms", "longest ms", *(f"{labels[name]}, ms" for name in used)),
        rows=rows,
        caption="Time of steps in ms, means of neighbours",
    )

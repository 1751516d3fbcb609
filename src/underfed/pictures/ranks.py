"""Ranks, the late ones first: what each does itself, and how long it waits for the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

from underfed.pictures.material import Material, rank_work
from underfed.pictures.shapes import Chart, Section, Table, number

_EMPTY = Section(id="ranks", title="Ranks, late ones first")

_MS = 1e-6
_LEGEND = (("device", "own work"), ("comms", "standing still for others, or exchanging with nothing beside it"))


@dataclass(frozen=True)
class Rank:
    """One rank in ms a step. `caused`: how long the others stood still for it; `waited`: how long it stood still."""

    rank: int
    step: float
    own: float
    data: float | None
    caused: float | None = None
    waited: float | None = None


def section(material: Material) -> Section:
    """Return the section about ranks."""
    found = of_traces(material) if material.ranks else of_recording(material)
    if len(found) < 2:
        return replace(_EMPTY, missing="One rank was seen.")
    found.sort(key=lambda one: (-(one.caused or 0.0), -one.own, one.rank))
    held = any(one.caused is not None for one in found)
    top = max((one.caused or 0.0 if held else one.own) for one in found) or 1.0
    table = Table(
        columns=(
            "rank",
            "others stood still for it, ms",
            "stood still itself, ms",
            "own work, ms",
            "step, ms",
            "data, ms",
        ),
        rows=[
            (str(one.rank), *(number(each) for each in (one.caused, one.waited, one.own, one.step, one.data)))
            for one in found
        ],
        bars=[min(1.0, (one.caused or 0.0 if held else one.own) / top) for one in found],
        stacks=_stacks(found),
        caption="Ranks, late ones first, ms a step",
    )
    chart = Chart(
        id="rank-chart", title="Who is waited for", says=_says(material, found), table=table, legend=_LEGEND, open=True
    )
    why = "no collective is common to them" if material.ranks else "a recording does not time it"
    notes = [] if held else [f"How long each stood still is not known ({why}), so the order is that of their own work."]
    return replace(_EMPTY, charts=[chart], notes=notes)


def _stacks(found: list[Rank]) -> list[list[tuple[str, float]]]:
    """Own work and the rest of the step, or how long the rank stood still, as shares of the longest of all."""
    parts = [(one.own, one.waited if one.waited is not None else max(0.0, one.step - one.own)) for one in found]
    longest = max((own + rest for own, rest in parts), default=0.0) or 1.0
    return [[("device", max(0.0, own) / longest), ("comms", max(0.0, rest) / longest)] for own, rest in parts]


def _says(material: Material, found: list[Rank]) -> str:
    late, early = found[0], found[-1]
    if material.skew is not None:
        named = ", ".join(str(rank) for rank in material.skew.late)
        if not named:
            return f"{len(found)} ranks; none is late in particular: being the last one moves between them."
        return f"{len(found)} ranks; most of the waiting is for rank {named}."
    if late.own - early.own < 0.05 * late.step:
        return f"All {len(found)} ranks have nearly the same work of their own."
    said = f"Rank {late.rank} has most work of its own, {number(late.own)} ms of a {number(late.step)} ms step"
    return f"{said}; rank {early.rank} has least, {number(early.own)} ms."


def of_traces(material: Material) -> list[Rank]:
    """Return the ranks of several traces: own work is the step without collectives that nothing covers."""
    from underfed.trace.evidence import evidence_of, steady_steps

    found = []
    seen = {one.rank: one for one in material.skew.ranks} if material.skew is not None else {}
    for rank, facts in material.ranks.items():
        evidence, _ = evidence_of(facts)
        own = evidence.step_ms - (evidence.step.exposed_comms_ms or 0.0)
        steps, one = max(1, steady_steps(facts)), seen.get(rank)
        caused = one.caused_ns * _MS / steps if one is not None else None
        waited = one.wait_ns * _MS / steps if one is not None else None
        found.append(Rank(rank, evidence.step_ms, own, evidence.step.wait_ms.data, caused, waited))
    return found


def of_recording(material: Material) -> list[Rank]:
    """Return the ranks of a recording: own work is the step without its backward pass and its collectives."""
    best: dict[int, Rank] = {}
    for log in material.recording.processes if material.recording is not None else []:
        rank, work = log.process.rank, rank_work(log)
        if rank is not None and work is not None:
            best[rank] = Rank(rank, *work)
    return list(best.values())

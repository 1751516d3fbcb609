"""From two sides to a Comparison: the same work or not, what changed, and whether it is more than noise."""

from __future__ import annotations

import math

from underfed.compare import noise, work
from underfed.compare.read import Side
from underfed.compare.records import Comparison, Outcome, Part, Ruling
from underfed.compare.records import Side as Shown
from underfed.diagnosis import Diagnosis, Step
from underfed.trial.records import Ratio
from underfed.trial.stats import DISTURBED, unseen

#: Parts of the budget that are no wait, with their names on the page.
_DEVICE = (("compute_ms", "compute"), ("copy_ms", "copies"), ("exposed_comms_ms", "communication"))
#: A run whose level moves by more than this from start to end is said to drift.
DRIFTS = 0.05


def compare(a: Side, b: Side, limit: float | None = None) -> Comparison:
    """Compare two sides; `limit` is the slowdown of B, as a share, above which the ruling is `fail`."""
    facts = work.facts(a.facts, b.facts)
    same = work.verdict(facts)
    found = noise.difference(a.values, b.values)
    before, after = _step_ms(a), _step_ms(b)
    outcome, text = _outcome(found, a, b, before, after)
    ratio = before / after if before and after else None
    return Comparison(
        a=_shown(a, before),
        b=_shown(b, after),
        work=same,
        facts=tuple(facts),
        outcome=outcome,
        text=text,
        gain=Ratio(value=_round(found.ratio), low=_round(found.low), high=_round(found.high)) if found else None,
        detectable=_round(found.detectable) if found else None,
        noise=_round(found.between) if found else None,
        noise_measured=found.measured if found else False,
        parts=tuple(parts(a.diagnosis.step, b.diagnosis.step)),
        limit=limit,
        ruling=None if limit is None else rule(found, limit, work_differs=same == "different"),
        limits=tuple(_limits(a, b, found, ratio)),
    )


def rule(found: noise.Difference | None, limit: float, *, work_differs: bool) -> Ruling:
    """Say whether B is slower than A by more than `limit`, beyond the noise.

    `fail` where the whole interval of the slowdown lies above the limit, and `pass` where it does not; `undecided`
    where the work differs, where there is no interval, or where the noise is so wide that a run slower by twice the
    limit would have passed as well.
    """
    if found is None or work_differs:
        return "undecided"
    bar = math.log1p(limit)
    slowdown = -math.log(found.ratio)
    half = math.log(found.detectable)
    if slowdown - half > bar:
        return "fail"
    if slowdown + half <= bar or half <= max(bar, math.log1p(_LEAST)):
        return "pass"
    return "undecided"


#: With a limit of 0 any noise would be too much; a half-width below this is always narrow enough.
_LEAST = 0.01


def _outcome(
    found: noise.Difference | None, a: Side, b: Side, before: float | None, after: float | None
) -> tuple[Outcome, str]:
    if found is None:
        ratio = f"a step of B takes {100 * (after / before - 1):+.1f} %, but " if before and after else ""
        return "undecided", f"cannot be decided: {ratio}{_why_undecided(a, b)}"
    if found.call == "none":
        least = unseen(found.detectable)
        if least is None:
            return "undecided", f"{DISTURBED}; record runs with nothing beside them, longer or several a side"
        return "no-change", f"no measurable difference; {least}"
    if found.call == "faster":
        return "faster", f"B is {found.ratio:.2f}x as fast as A ({found.low:.2f}x to {found.high:.2f}x)"
    slow = [100 * (1 / one - 1) for one in (found.ratio, found.high, found.low)]
    return "slower", f"B is slower: its step is {slow[0]:.1f} % longer ({slow[1]:.1f} to {slow[2]:.1f} %)"


def _why_undecided(a: Side, b: Side) -> str:
    if "trace" in (a.kind, b.kind):
        return "a trace holds a few steps under a profiler, which say nothing of the noise; record runs: underfed run"
    return "the runs are too short to show their own noise; record longer ones, or several a side"


def _step_ms(side: Side) -> float | None:
    if side.values:
        return math.exp(sum(one.log for one in side.values) / len(side.values))
    return side.diagnosis.step.ms


def _shown(side: Side, step: float | None) -> Shown:
    verdict = side.diagnosis.verdict
    return Shown(
        path=side.path,
        kind=side.kind,
        runs=max(1, len(side.values)),
        steps=side.steps,
        step_ms=None if step is None else _round(step),
        bound=verdict.bound,
        confidence=verdict.confidence,
        cause=verdict.cause,
        text=verdict.text,
        marks=tuple(side.marks),
    )


def parts(a: Step, b: Step) -> list[Part]:
    """Return the parts of both budgets, the largest change first; one that neither knows is left out."""
    found = [_part(name, getattr(a, field), getattr(b, field)) for field, name in _DEVICE]
    if all(part.a is None and part.b is None for part in found):
        found = [_part("device", a.device_ms, b.device_ms)]
    for name in a.wait_ms.__struct_fields__:
        one, two = getattr(a.wait_ms, name), getattr(b.wait_ms, name)
        # What communication leaves uncovered is a part of its own already.
        if name != "comms" or all(part.name != "communication" for part in found):
            found.append(_part(f"wait: {name}", one, two))
    known = [part for part in found if part.a is not None or part.b is not None]
    return sorted(known, key=lambda part: -abs(part.change or 0.0))


def _part(name: str, a: float | None, b: float | None) -> Part:
    return Part(name=name, a=a, b=b, change=b - a if a is not None and b is not None else None)


def _limits(a: Side, b: Side, found: noise.Difference | None, ratio: float | None) -> list[str]:
    limits = []
    if found is not None and not found.measured:
        limits.append(
            f"one run a side: that runs of the same thing differ by {100 * noise.BETWEEN:g} % (standard deviation) is "
            "allowed for, not measured; folders of several recordings measure it"
        )
    if found is not None and found.drift > DRIFTS:
        limits.append(f"a run drifts by {100 * found.drift:.0f} % from its start to its end, which widens the interval")
    means = [_rare(side.diagnosis, step) for side, step in ((a, _step_ms(a)), (b, _step_ms(b)))]
    if found is not None and None not in means and abs((means[0] or 0) - (means[1] or 0)) > DRIFTS:
        limits.append(
            f"rare long steps (checkpoints, validation, epochs) add {100 * (means[0] or 0):.0f} % to the step of A and "
            f"{100 * (means[1] or 0):.0f} % to that of B: they are in the budget, not in the ratio"
        )
    if ratio is not None and "trace" in (a.kind, b.kind):
        limits.append("steps of traces are estimates of what they take without the profiler")
    for name, side in (("A", a), ("B", b)):
        limits += [f"{name} was disturbed: {mark}" for mark in side.marks]
        limits += [f"{name}: {line}" for line in side.limits]
    return list(dict.fromkeys(limits))


def _rare(diagnosis: Diagnosis, step: float | None) -> float | None:
    mean = diagnosis.step.ms
    return mean / step - 1 if mean and step else None


def _round(value: float) -> float:
    return float(f"{value:.6g}")

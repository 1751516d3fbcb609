"""Figures over labelled cases: by source, by rule, and thresholds by cross-validation over scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from score_cases import Case

from underfed.diagnose.thresholds import THRESHOLDS as T


@dataclass(frozen=True)
class Figures:
    """Counts over some cases, and the median error of the middle of the expected range, None without any."""

    cases: int
    bounds_right: int
    planted: int
    first: int
    quiet: int
    alarms: int
    bounded: int
    held: int
    ranged: int
    inside: int
    error: float | None


def figures(cases: Sequence[Case]) -> Figures:
    """Sum up; a case may name no alarm that it must not, and only quiet cases and those with `never` can be alarmed."""
    planted = [case for case in cases if case.rules]
    able = [case for case in cases if case.quiet or case.never]
    gains = [gain for case in cases if (gain := case.scored_gain) is not None]
    ranged = [(true, low, high) for true, low, high, _ in gains if low is not None and high is not None]
    errors = [abs((low * high) ** 0.5 - true) / true for true, low, high in ranged]
    return Figures(
        cases=len(cases),
        bounds_right=sum(case.bound_right for case in cases),
        planted=len(planted),
        first=sum(case.hit for case in planted),
        quiet=len(able),
        alarms=sum(bool(case.alarms) for case in able),
        bounded=len(gains),
        held=sum(true <= most for true, _, _, most in gains),
        ranged=len(ranged),
        inside=sum(low <= true <= high for true, low, high in ranged),
        error=median(errors) if errors else None,
    )


def worse(now: dict[str, float | None], before: dict[str, float | None]) -> list[str]:
    """Return the figures, as dictionaries, in which `now` is worse than `before`; numbers of cases must not shrink.

    No error at all is no small one: a range that is not given any more is worse as well.
    """
    grow = ("cases", "bounds_right", "planted", "first", "quiet", "bounded", "held", "ranged", "inside")
    found = [name for name in grow if (now[name] or 0) < (before[name] or 0)]
    found += [name for name in ("alarms",) if (now[name] or 0) > (before[name] or 0)]
    was, error = before["error"], now["error"]
    if was is not None and (error is None or error > was + 0.01):
        found.append("error")
    return found


@dataclass
class OfRule:
    """What became of one rule: named first where it is right, missing where it is, and named where it must not be."""

    found: int = 0
    missed: int = 0
    false: int = 0


def by_rule(cases: Sequence[Case]) -> dict[str, OfRule]:
    """Count by rule; a miss counts for the first rule that the label names."""
    table: dict[str, OfRule] = {}
    for case in cases:
        if case.rules and case.hit and case.first is not None:
            table.setdefault(case.first.rule, OfRule()).found += 1
        elif case.rules:
            table.setdefault(case.rules[0], OfRule()).missed += 1
        for rule in case.alarms:
            table.setdefault(rule, OfRule()).false += 1
    return dict(sorted(table.items()))


@dataclass(frozen=True)
class Validated:
    """One threshold: what is used, where all cases would put it, and how leave-one-scenario-out did."""

    name: str
    used: float
    chosen: float
    scenarios: int
    right: int
    of: int


_Point = tuple[str, float, bool]


def _cut(points: Sequence[_Point]) -> float | None:
    """The cut with fewest errors, in the middle of its widest gap; None without both sides."""
    values = sorted({value for _, value, _ in points})
    if len({above for _, _, above in points}) < 2:
        return None
    middles = [(low + high) / 2 for low, high in pairwise(values)]

    def errors(cut: float) -> int:
        return sum((value >= cut) != above for _, value, above in points)

    best = min(errors(cut) for cut in middles)
    good = [(high - low, (low + high) / 2) for low, high in pairwise(values)]
    return max((width, cut) for width, cut in good if errors(cut) == best)[1]


def validate(name: str, used: float, points: Sequence[_Point]) -> Validated | None:
    """Choose the cut on all scenarios but one, and judge that one with it; None where one side has no second one."""
    scenarios = sorted({scenario for scenario, _, _ in points})
    whole = _cut(points)
    if whole is None:
        return None
    right = of = 0
    for left_out in scenarios:
        cut = _cut([point for point in points if point[0] != left_out])
        if cut is None:
            return None
        mine = [point for point in points if point[0] == left_out]
        right += sum((value >= cut) == above for _, value, above in mine)
        of += len(mine)
    return Validated(name, used, whole, len(scenarios), right, of)


def thresholds(cases: Sequence[Case]) -> list[Validated]:
    """Cross-validate the thresholds that separate two kinds of labelled runs by one figure."""
    clear = [case for case in cases if len(case.bounds) == 1 and case.found.step.device_share is not None]
    gpu = [case for case in clear if case.source != "planted" and case.scenario != "pageable"]
    cpu = [case for case in clear if case.source == "planted" and case.bounds[0] != "comms"]
    fetch = _shares(cases)
    found = [
        validate("compute_share", T.compute_share, [_share(case) for case in gpu]),
        validate("compute_share_cpu", T.compute_share_cpu, [_share(case) for case in cpu]),
        validate("computing_fetch", T.computing_fetch, fetch),
        validate("waiting_fetch", T.waiting_fetch, fetch),
    ]
    return [one for one in found if one is not None]


def _share(case: Case) -> _Point:
    return case.scenario, case.found.step.device_share or 0.0, case.bounds[0] == "compute"


#: Scripts and scenarios whose fetches compute, and those whose fetches wait for a store, whatever loads them.
_COMPUTES = frozenset(
    {"workers_zero", "workers_few", "resize_zero_workers", "one_worker_augment", "next_iterator", "grad_accumulation"}
)
_WAITS = frozenset({"read_from_store", "one_worker_latency", "store_bandwidth"})


def _shares(cases: Sequence[Case]) -> list[_Point]:
    """CPU share of a fetch, where a finding says it."""
    points = []
    for case in cases:
        if case.source in ("h200", "planted") and case.scenario in _COMPUTES | _WAITS:
            wall, cpu = (_seen(case, text) for text in ("wall time of one fetch", "CPU time of one fetch"))
            wall = wall or _seen(case, "one fetch, ")
            if wall and cpu is not None:
                points.append((case.scenario, min(1.0, cpu / wall), case.scenario in _COMPUTES))
    return points


def _seen(case: Case, text: str) -> float | None:
    seen = (one for finding in case.found.findings for one in finding.evidence)
    return next((one.value for one in seen if one.text.startswith(text) and one.value), None)

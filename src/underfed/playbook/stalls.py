"""What the rules about work on the training thread share."""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_without
from underfed.playbook.rule import Rule


def stall_finding(
    rule: Rule, evidence: Evidence, kinds: tuple[str, ...], *, what: str, advice: str, fix: Fix
) -> Finding | None:
    """Make the finding for one kind of stall, or None where it is too small to matter.

    The time is what the samples give these classes, in ms a step; the place is the line that holds most of it.
    """
    spots = [spot for spot in evidence.spots if spot.kind in kinds]
    cost = sum(spot.ms for spot in spots)
    if "eval" in kinds:
        cost = max(cost, evidence.regions.get("eval", 0.0))
    if cost <= 0 or cost < T.worth * evidence.step_ms or not spots or not evidence.step_ms:
        return None
    worst = max(spots, key=lambda spot: spot.ms)
    # Copies and waits at the same line go with the work that asked for them.
    waits = sum(spot.ms for spot in evidence.spots if spot.where == worst.where and spot.kind in ("sync", "d2h", "gc"))
    share = cost / evidence.step_ms
    return rule.finding(
        summary=f"{what} takes {100 * share:.0f} % of the step on the training thread; {advice}.",
        gain=gain_without(evidence, cost + waits),
        where=worst.where,
        evidence=[
            Observation(source="agent", text="time in it, by samples", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text=f"most of it at {worst.leaf}", value=round(worst.ms, 3), unit="ms/step"),
        ],
        fix=fix,
    )

"""What the rules about work on the training thread share."""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Gain, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import floor_ms, gain_between, gain_without, slack
from underfed.playbook.rule import Rule

#: A median step below this share of the mean one says that something long comes only now and then.
_RARE = 0.7
#: The median is the step without the stall where the stall makes up the difference, as far as samples can tell.
_WHOLE = 1.25


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
    taken = f"{100 * share:.0f} % of the step on the training thread{_idle(evidence, share)}"
    return rule.finding(
        summary=f"{what} takes {taken}; {advice}.",
        gain=_gain(evidence, cost + waits),
        where=worst.where,
        evidence=[
            Observation(source="agent", text="time in it, by samples", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text=f"most of it at {worst.leaf}", value=round(worst.ms, 3), unit="ms/step"),
        ],
        fix=fix,
    )


def _idle(evidence: Evidence, share: float) -> str:
    """Say how much of it the device idles, where that is less: what it copies meanwhile counts as its own time."""
    idle = evidence.wait_ms.get("stall")
    if not evidence.on_gpu or evidence.step.device_ms is None or idle is None:
        return ""
    idle_share = idle / evidence.step_ms
    if share - idle_share <= T.worth:
        return ""
    return f" (the GPU idles for {100 * idle_share:.0f} %, and copies or computes meanwhile)"


def _gain(evidence: Evidence, saved_ms: float) -> Gain:
    """Gain without the stall. One that comes every so many steps leaves the others alone, and their median is what a
    step takes without it: known far better than what the stall itself takes.
    """
    usual, rest = evidence.usual_ms, evidence.step_ms - saved_ms
    # Something else that comes now and then, such as bursts of input, makes the median as small, and stays.
    if usual is None or usual >= _RARE * evidence.step_ms or evidence.step_ms - usual > _WHOLE * saved_ms:
        return gain_without(evidence, saved_ms)
    whole = gain_without(evidence, saved_ms, spread=0.0)
    device = min(floor_ms(evidence), usual)
    low, high = max(0.9 * min(usual, max(rest, 0.0)), device), max(usual, min(rest, 1.5 * usual), device)
    best = min(evidence.step_ms / whole.at_most, (0.8 if evidence.on_gpu else slack(evidence)) * usual)
    return gain_between(evidence, best, (low, high))

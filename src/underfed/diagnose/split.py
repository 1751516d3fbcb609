"""The bound: which resource gates the step, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Bound, Confidence, Step

#: Which bound each wait of the budget belongs to. What is left over belongs to none.
BELONGS: dict[str, Bound] = {
    "data": "data",
    "transfer": "data",
    "launch": "host",
    "sync": "host",
    "stall": "host",
    "comms": "comms",
}


@dataclass(frozen=True)
class Split:
    """A bound, the share of the step that speaks for it, and the confidence."""

    bound: Bound
    share: float | None
    confidence: Confidence
    why: str | None = None


def shares(step: Step) -> dict[Bound, float]:
    """Return the share of the step that each bound holds, from the waits that are known."""
    total = step.ms or 0.0
    found: dict[Bound, float] = {"data": 0.0, "host": 0.0, "comms": 0.0}
    if total > 0:
        for name, bound in BELONGS.items():
            found[bound] += (getattr(step.wait_ms, name) or 0.0) / total
    return found


def lower(confidence: Confidence) -> Confidence:
    """One grade lower."""
    return "low" if confidence != "high" else "medium"


def split(step: Step, *, steps: int, steady: bool = True, on_gpu: bool = True) -> Split:
    """Decide what gates a step whose budget is known.

    A device that is busy for most of the step gates it; else the largest wait does. A device whose time is mostly
    copies of input that the step waits for is fed too slowly, so those copies count as data.
    """
    if not step.ms or step.device_share is None:
        return Split("unknown", None, "low", "no device time was measured")
    waits = shares(step)
    device = step.device_share
    copy = (step.copy_ms or 0.0) / step.ms
    compute = device - copy
    confidence: Confidence = "high" if steps >= T.enough_steps else "medium" if steps >= T.few_steps else "low"
    if not steady:
        confidence = lower(confidence)
    other = (step.wait_ms.other or 0.0) / step.ms
    if other > T.other_share:
        confidence = lower(confidence)
    cut = T.compute_share if on_gpu else T.compute_share_cpu
    if abs(device - cut) < T.unsure:
        confidence = lower(confidence)
    copies_gate = on_gpu and copy > T.copies_gate and compute < cut - T.unsure
    if device >= cut and not copies_gate:
        return Split("compute", device, confidence)
    if copies_gate:
        waits["data"] += copy
    bound = max(waits, key=lambda name: waits[name])
    if waits[bound] <= 0:
        return Split("unknown", None, "low", "the device idles, and nothing that was measured accounts for it")
    if other > waits[bound]:
        return Split("unknown", other, "low", "most of the waiting is not accounted for")
    ranked = sorted(waits.values(), reverse=True)
    if ranked[0] - ranked[1] < T.worth:
        confidence = lower(confidence)
    return Split(bound, waits[bound], confidence)

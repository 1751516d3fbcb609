"""What gates the run is not known, and one more measurement would settle it.

What it looks like
    Training is slow, and the instinct is to change the batch size, the workers or the model at random.

Why it costs
    A step is gated by exactly one resource at a time: the device, the input, the training thread that feeds the
    device, or the other ranks. The cures have nothing in common, so a guess mostly costs rented time.

Fix
    Make the measurement that is named. Every other rule stands on this split.
    plain PyTorch: `$ underfed run --window 10 -- python train.py`
    HF Trainer:    the same command; nothing in the script changes
    Lightning:     the same command; nothing in the script changes

How it is found
    The budget of a step: device time, and each wait by cause. Where device time is missing, or most of the wait has no
    name, this finding says so instead of a guess.

When it stays silent
    When the split is known.

Not to be confused with
    A verdict with low confidence, which names a bound and says how to make sure.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Say what is missing where the bound is not known."""
    if evidence.bound != "unknown":
        return None
    if evidence.on_gpu and evidence.step.device_ms is None:
        what = "how long the GPU is busy in a step"
        how = "underfed run --window 10 -- COMMAND"
    else:
        what = "what most of the step is spent on"
        how = "underfed run -- COMMAND, for longer"
    seen = [
        Observation(source="agent", text=f"known wait: {name}", value=round(value, 3), unit="ms/step")
        for name, value in evidence.wait_ms.items()
        if value > 0
    ]
    return RULE.finding(
        summary=f"Not measured: {what}.",
        evidence=seen,
        fix=Fix(text=f"measure it: {how}"),
    )


RULE = Rule(
    id="T1",
    name="bound-not-known",
    stage="box",
    bound="unknown",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

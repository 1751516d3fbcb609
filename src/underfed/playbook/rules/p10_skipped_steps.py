"""The gradient scaler skips steps, so batches are computed for nothing.

What it looks like
    fp16 with a GradScaler, and optimizer steps that come a batch late again and again.

Why it costs
    Where a gradient overflows, the scaler halves its factor and drops the step: forward and backward of that batch are
    thrown away. A few at the start are normal; a steady share means that fp16 is too narrow for this model.

Fix
    plain PyTorch: `with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)`, without a scaler
    HF Trainer:    `TrainingArguments(bf16=True)`
    Lightning:     `Trainer(precision="bf16-mixed")`
    On cards before Ampere: `torch.amp.GradScaler("cuda", growth_interval=10000)`, or find the layer that overflows.
    It changes the numbers: compare the loss curve.

How it is found
    An optimizer that a GradScaler calls, and steady steps that took twice the usual number of batches, or more.

When it stays silent
    Without a scaler, in the warm-up, and where no more than one batch in twenty is lost.

Not to be confused with
    M5: accumulation, where every step takes the same number of batches. P5: no scaler at all.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find batches that ended in no optimizer step under a scaler."""
    optimizers = evidence.torch.get("optimizers") or []
    skipped, step = evidence.skipped, evidence.step_ms
    if not any(one.get("scaled") is True for one in optimizers) or skipped is None or step <= 0:
        return None
    if skipped < T.worth:
        return None
    # A batch without a step lacks the optimizer's part, which is the least of it.
    optimizer = min(evidence.regions.get("optimizer", 0.0), 0.5 * step)
    left = step * (1 - skipped)
    return RULE.finding(
        summary=f"The gradient scaler drops {100 * skipped:.0f} % of the batches: they overflow in fp16.",
        gain=gain_between(evidence, left, (left, min(step, left + skipped * optimizer))),
        evidence=[Observation(source="agent", text="batches without a step", value=round(skipped, 4), unit="share")],
        bound=evidence.bound if evidence.bound != "unknown" else None,
        fix=Fix(
            text="train in bf16, which has the range of 32 bits",
            code='with torch.autocast("cuda", dtype=torch.bfloat16): ...',
        ),
        note="changes the numbers: compare the loss curve",
    )


RULE = Rule(
    id="P10",
    name="steps-skipped-by-scaler",
    stage="precision",
    bound="compute",
    numerics="precision",
    doc=__doc__ or "",
    check=check,
)

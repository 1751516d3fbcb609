"""fp16 is trained without a gradient scaler, so small gradients become zero.

What it looks like
    Kernels in fp16, an optimizer step that no GradScaler calls, and a loss that stops falling early.

Why it costs
    Gradients below 6e-8 do not exist in fp16. It is no loss of speed: the run is as fast as it looks, and what it
    learns is not what it would.

Fix
    plain PyTorch: `scaler = torch.amp.GradScaler("cuda")`, then `scaler.scale(loss).backward()`,
    `scaler.unscale_(optimizer)` before gradients are clipped (P7), `scaler.step(optimizer)` and `scaler.update()`
    HF Trainer:    `TrainingArguments(fp16=True)` scales by itself
    Lightning:     `Trainer(precision="16-mixed")` scales by itself
    From Ampere on bf16 needs no scaler: `torch.autocast("cuda", dtype=torch.bfloat16)`.

How it is found
    fp16 in the names of traced matrix kernels, and what called the optimizer's step.

When it stays silent
    With a scaler, in bf16 or 32 bits, without a traced window, and under DeepSpeed or apex, which scale themselves.

Not to be confused with
    P10: a scaler that skips steps. P3: bf16 on a card without it.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.kernels import fp16_share
from underfed.playbook.rule import Rule

_SHARE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find fp16 products behind an optimizer that no scaler calls."""
    optimizers = evidence.torch.get("optimizers") or []
    own = [one for one in optimizers if one.get("torch_own")]
    share = fp16_share(evidence)
    if share is None or share < _SHARE or not own or len(own) < len(optimizers):
        return None
    if any(one.get("scaled") is not False for one in own):
        return None
    return RULE.finding(
        summary="Training runs in fp16 without a gradient scaler: small gradients become zero.",
        evidence=[
            Observation(source="trace", text="fp16 matrix kernels", value=round(share, 3), unit="of kernel time"),
            Observation(source="agent", text="no GradScaler calls the optimizer's step"),
        ],
        fix=Fix(text="scale the loss, or train in bf16", code='scaler = torch.amp.GradScaler("cuda")'),
        helps_now=False,
        note="a matter of what is learnt, not of speed: check the loss curve",
    )


RULE = Rule(
    id="P5",
    name="fp16-without-scaler",
    stage="precision",
    bound="compute",
    numerics="precision",
    doc=__doc__ or "",
    check=check,
)

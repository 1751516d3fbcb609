"""Matrix work runs on 32-bit operands on a card whose tensor cores take 16-bit ones.

What it looks like
    A busy GPU, kernels named tf32 or f32, no autocast.

Why it costs
    16-bit products run at twice the rate of TF32, and activations and their gradients take half the memory traffic.

Fix
    plain PyTorch: `with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)`
    HF Trainer:    `TrainingArguments(bf16=True)`
    Lightning:     `Trainer(precision="bf16-mixed")`
    Around forward and loss, not around backward; no GradScaler is needed for bf16. This changes the numbers:
    compare the loss curve with the spread between seeds before you trust it. Before Ampere bf16 is emulated; use
    fp16 with a GradScaler there.

How it is found
    The share of 32-bit matrix kernels against 16-bit ones in the traced window.

When it stays silent
    When 16-bit kernels dominate, before Ampere, and when the GPU is not what gates.

Not to be confused with
    T9: TF32 off is the cheaper fix and comes first. T14: the math backend of attention computes in 32 bits by itself.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, shares
from underfed.playbook.rule import Rule

_SHARE = 0.20


def check(evidence: Evidence) -> Finding | None:
    """Find matrix work in 32 bits with hardly any in 16."""
    found = shares(evidence)
    capability = evidence.torch.get("capability") or [0]
    if found is None or capability[0] < 8 or found.fp32_matrix < _SHARE or found.half_matrix > found.fp32_matrix / 3:
        return None
    matrix, rest = found.fp32_matrix, 1 - found.fp32_matrix
    best = after(evidence, (matrix, 16.0 if found.fp32_scalar > _SHARE else 5.0), (rest, 2.0))
    scale = 4.0 if found.fp32_scalar > _SHARE else 1.0
    likely = (after(evidence, (matrix, 2.6 * scale), (rest, 1.5)), after(evidence, (matrix, 1.8 * scale), (rest, 1.1)))
    return RULE.finding(
        summary=f"{100 * matrix:.0f} % of the GPU's time is matrix work on 32-bit operands; bf16 would halve it.",
        gain=gain_between(evidence, best, likely),
        evidence=[
            Observation(source="trace", text="32-bit matrix kernels", value=round(matrix, 3), unit="of kernel time"),
            Observation(
                source="trace", text="16-bit matrix kernels", value=round(found.half_matrix, 3), unit="of kernel time"
            ),
        ],
        fix=Fix(
            text="run forward and loss under autocast",
            code='with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)',
        ),
        note="changes the numbers: compare the loss curve before trusting it",
    )


RULE = Rule(
    id="T13",
    name="fp32-where-16-bit-would-do",
    stage="precision",
    bound="compute",
    numerics="precision",
    doc=__doc__ or "",
    check=check,
)

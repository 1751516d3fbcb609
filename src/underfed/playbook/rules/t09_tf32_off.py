"""32-bit matrix products run without tensor cores, because TF32 is off.

What it looks like
    A GPU that computes all the time, in kernels named sgemm, simt or ffma.

Why it costs
    On Ampere and later, tensor cores multiply TF32 several times faster than the ordinary units multiply fp32. PyTorch
    has kept TF32 off for matrix products since 1.12.

Fix
    plain PyTorch: `torch.set_float32_matmul_precision("high")` once at the start
    HF Trainer:    `TrainingArguments(tf32=True)`
    Lightning:     `torch.set_float32_matmul_precision("high")` before the Trainer is made
    Products keep 10 bits of mantissa instead of 23: check the loss curve.

How it is found
    Kernel names in the traced window, with torch's own setting.

When it stays silent
    When the setting is "high" or "medium", when tensor cores run, and when the GPU is not what gates.

Not to be confused with
    T13: 16-bit formats go further and halve memory traffic as well.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, shares
from underfed.playbook.rule import Rule

_SHARE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find fp32 matrix kernels without tensor cores while the setting forbids them."""
    found = shares(evidence)
    capability = evidence.torch.get("capability") or [0]
    if found is None or found.fp32_scalar < _SHARE or evidence.torch.get("matmul_precision") != "highest":
        return None
    if capability[0] < 8:
        return None
    share = found.fp32_scalar
    gain = gain_between(
        evidence, after(evidence, (share, 16.0)), (after(evidence, (share, 8.0)), after(evidence, (share, 4.0)))
    )
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the GPU's time are fp32 matrix products without tensor cores; TF32 is off.",
        gain=gain,
        evidence=[
            Observation(
                source="trace", text="kernels without tensor cores", value=round(share, 3), unit="of kernel time"
            ),
            Observation(source="agent", text="torch.get_float32_matmul_precision() is 'highest'"),
        ],
        fix=Fix(text="allow TF32 for matrix products", code='torch.set_float32_matmul_precision("high")'),
    )


RULE = Rule(
    id="T9",
    name="fp32-matmul-without-tensor-cores",
    stage="free",
    bound="compute",
    numerics="precision",
    doc=__doc__ or "",
    check=check,
)

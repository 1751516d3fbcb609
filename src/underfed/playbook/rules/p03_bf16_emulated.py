"""bf16 runs on a card that has no bf16 units, so it is emulated.

What it looks like
    A V100, T4 or RTX 20 card, autocast to bfloat16, and a run that is slower than in 32 bits.

Why it costs
    Tensor cores before Ampere take fp16 only. bf16 operations are computed in 32 bits with conversions around them;
    torch.cuda.is_bf16_supported() answers True all the same, since it counts the emulation.

Fix
    plain PyTorch: `with torch.autocast("cuda", dtype=torch.float16): loss = criterion(model(x), y)`, and `scaler =
    torch.amp.GradScaler("cuda")`
    HF Trainer:    `TrainingArguments(fp16=True)`
    Lightning:     `Trainer(precision="16-mixed")`
    fp16 has a narrow range: watch for skipped steps. `torch.cuda.is_bf16_supported(including_emulation=False)`
    tells the truth.

How it is found
    The card's compute capability, and bf16 in the names of traced kernels.

When it stays silent
    From Ampere on, and without bf16 kernels.

Not to be confused with
    T13: 32 bits where 16 would do.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, bf16_share
from underfed.playbook.rule import Rule

_SHARE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find bf16 kernels on a card of before Ampere."""
    capability = evidence.torch.get("capability") or [0]
    share = bf16_share(evidence)
    if not 0 < capability[0] < 8 or share is None or share < _SHARE:
        return None
    # fp16 tensor cores multiply eight times faster than these cards do in 32 bits; half of that is usual at best.
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the GPU's time is bf16 that this card emulates; fp16 has units of its own.",
        gain=gain_between(evidence, after(evidence, (share, 10.0)), (after(evidence, (share, 4.0)), evidence.step_ms)),
        evidence=[
            Observation(source="trace", text="bf16 kernels", value=round(share, 3), unit="of kernel time"),
            Observation(source="trace", text="compute capability", value=float(capability[0])),
        ],
        fix=Fix(
            text="use fp16 with a GradScaler on this card",
            code='with torch.autocast("cuda", dtype=torch.float16): ...',
        ),
        note="changes the numbers: fp16 overflows where bf16 does not",
    )


RULE = Rule(
    id="P3",
    name="bf16-emulated",
    stage="precision",
    bound="compute",
    numerics="precision",
    doc=__doc__ or "",
    check=check,
)

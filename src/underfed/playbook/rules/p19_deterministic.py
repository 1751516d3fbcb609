"""Deterministic algorithms are on, and some operations have only slow ones.

What it looks like
    torch.use_deterministic_algorithms(True), often set for a test or a comparison and left on.

Why it costs
    Sums by atomic additions are replaced by sorted or serial ones, cuDNN may not choose freely, and memory is filled
    before use. How much that costs depends on the operations.

Fix
    plain PyTorch: `torch.use_deterministic_algorithms(False)` and `torch.backends.cudnn.benchmark = True`
    HF Trainer:    `TrainingArguments(full_determinism=False)`
    Lightning:     `Trainer(deterministic=False)`
    Only where runs need not repeat bit for bit: keep it for comparisons that rest on it.

How it is found
    torch's setting.

When it stays silent
    With the setting off.

Not to be confused with
    T10: the search is off and determinism is not asked for.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find deterministic algorithms; whether they are wanted, only the user knows."""
    if not evidence.torch.get("deterministic"):
        return None
    return RULE.finding(
        summary="Deterministic algorithms are on; where runs need not repeat bit for bit, try without.",
        evidence=[Observation(source="agent", text="torch.are_deterministic_algorithms_enabled() is True")],
        bound=evidence.bound_of_device_code() if not evidence.on_gpu else None,
        fix=Fix(text="switch them off for runs that need not repeat", code="torch.use_deterministic_algorithms(False)"),
        helps_now=False,
        note="what it costs depends on the operations: a trial tells, and comparisons may rest on it",
    )


RULE = Rule(
    id="P19",
    name="deterministic-algorithms-on",
    stage="free",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

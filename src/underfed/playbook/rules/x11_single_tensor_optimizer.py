"""The optimizer updates parameters one by one, with several small operations for each.

What it looks like
    optimizer.step() takes a large part of the step, and its time grows with the number of tensors, not their size.

Why it costs
    A model of 300 tensors needs thousands of launches a step instead of a few dozen.

Fix
    plain PyTorch: `torch.optim.AdamW(model.parameters(), fused=True)`, or `foreach=True` (the default on CUDA since
    2.0)
    HF Trainer:    `TrainingArguments(optim="adamw_torch_fused")`
    Lightning:     `torch.optim.AdamW(self.parameters(), fused=True)` in configure_optimizers()
    On a CPU foreach does not help, fused does. A custom optimizer: torch._foreach_* over lists of tensors. Results
    agree to rounding, not bit for bit.

How it is found
    Time in optimizer.step() by its hooks, the optimizer's settings and the number of its tensors; in a trace the range
    that torch records around it, and how many kernels it launches.

When it stays silent
    When the optimizer is fused, or its step is a small part.

Not to be confused with
    T15 (launch-bound everywhere).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_SHARE = 0.15
_TENSORS = 30
_KERNELS = 100


def check(evidence: Evidence) -> Finding | None:
    """Find an optimizer that loops over its tensors and takes a large part of the step."""
    cost = evidence.regions.get("optimizer", 0.0)
    loops = [
        optimizer
        for optimizer in evidence.torch.get("optimizers") or []
        if (optimizer.get("tensors", 0) >= _TENSORS or optimizer.get("kernels", 0) >= _KERNELS)
        and not optimizer.get("fused")
        and _one_by_one(optimizer, evidence.on_gpu)
    ]
    if not loops or cost < _SHARE * evidence.step_ms:
        return None
    step, name = evidence.step_ms, loops[0].get("name", "optimizer")
    device = evidence.step.device_ms or 0.0 if evidence.on_gpu else 0.0
    # A trace stretches this stretch of short launches by another factor than the rest of the step.
    best = max(step - (1.25 if evidence.kind == "trace" else 1.0) * cost, device)
    many = loops[0].get("tensors")
    what = f"updates {many} tensors one by one" if many else f"launches {loops[0]['kernels']:.0f} kernels a step"
    place = evidence.top("optimizer")
    return RULE.finding(
        summary=f"{name} {what}; use its fused or foreach form.",
        gain=gain_between(evidence, best, (max(best, step - 0.97 * cost), max(best, step - 0.75 * cost))),
        where=place.where if place else None,
        evidence=[
            Observation(source="agent", text="optimizer.step()", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text="tensors", value=many and float(many), unit="tensors"),
        ],
        bound=evidence.bound_of_device_code(),
        fix=Fix(text="use the fused form of the optimizer", code=f"torch.optim.{name}(..., fused=True)")
        if loops[0].get("torch_own")
        else Fix(text="update lists of tensors with torch._foreach_* operations"),
    )


def _one_by_one(optimizer: dict[str, object], on_gpu: bool) -> bool:
    """foreach unset means on for CUDA parameters and off for CPU ones; an own class loops unless it says otherwise."""
    foreach = optimizer.get("foreach")
    if foreach is None:
        return not on_gpu or not optimizer.get("torch_own")
    return not foreach


RULE = Rule(
    id="X11",
    name="single-tensor-optimizer",
    stage="free",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

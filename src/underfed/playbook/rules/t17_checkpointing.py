"""Activation checkpointing is on although the device's memory is mostly free.

What it looks like
    Forward runs a second time inside backward, beside gigabytes that nobody uses.

Why it costs
    Checkpointed blocks are computed again in backward, which adds about a third of a forward pass's worth to the step
    when every block is checkpointed.

Fix
    Switch it off, or checkpoint only the heaviest blocks.
    plain PyTorch: `x = block(x)` instead of `x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)`
    HF Trainer:    `TrainingArguments(gradient_checkpointing=False)`
    Lightning:     the same call in the module; of FSDP: `FSDPStrategy(activation_checkpointing_policy=None)`

How it is found
    The call of torch.utils.checkpoint, and the allocator's peak against the card's memory. In a trace, operators of a
    forward pass that run inside nodes of the backward pass, with the device's time for them.

When it stays silent
    When memory is in use, or the GPU is not what gates.

Not to be confused with
    X6: checkpoints on disk.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_USED = 0.6


def check(evidence: Evidence) -> Finding | None:
    """Find activation checkpointing beside free memory."""
    memory = evidence.torch.get("memory") or {}
    total, peak = memory.get("total", 0), memory.get("peak", 0)
    if not evidence.torch.get("checkpointing"):
        return None
    if evidence.kind == "trace":
        return _traced(evidence)
    if not total or peak > _USED * total:
        return None
    step = evidence.step_ms
    # Forward is a third of an ordinary step; how much of it is checkpointed is not known, so between a third and all.
    return RULE.finding(
        summary=f"Backward recomputes activations although {100 * (1 - peak / total):.0f} % of the memory is free.",
        gain=gain_between(evidence, step / 1.45, (step / 1.33, step / 1.08)),
        where=evidence.torch.get("checkpointing_at"),
        evidence=[
            Observation(source="agent", text="peak of device memory", value=round(peak / 2**30, 2), unit="GiB"),
            Observation(source="agent", text="memory of the device", value=round(total / 2**30, 2), unit="GiB"),
        ],
        fix=Fix(text="switch activation checkpointing off, or use it on fewer blocks"),
    )


def _traced(evidence: Evidence) -> Finding | None:
    """A trace shows what is computed again, and not whether the memory is free."""
    trace, step = evidence.trace, evidence.step_ms
    if trace is None or step <= 0:
        return None
    again = trace.clues.recomputed_ns * 1e-6 / max(1, evidence.steps)
    if again < T.worth * step:
        return None
    device = evidence.step.device_ms or 0.0
    # On a device that fills the step, all of it goes away; on one that idles, its part of the host's launches as well.
    left = step - again if device >= T.compute_share * step else step * (1 - again / max(device, again))
    return RULE.finding(
        summary=(
            f"Backward computes activations again for {again:.3g} ms of each {step:.3g} ms step; "
            "where they fit into memory, switch checkpointing off."
        ),
        gain=gain_between(evidence, min(left, step - again) - 0.05 * step, (left, step - 0.8 * again)),
        evidence=[
            Observation(source="trace", text="computed again in backward", value=round(again, 3), unit="ms/step")
        ],
        fix=Fix(text="switch activation checkpointing off, or use it on fewer blocks"),
        note="whether the memory is free is not in the trace: underfed run -- COMMAND says",
    )


RULE = Rule(
    id="T17",
    name="checkpointing-with-free-memory",
    stage="memory",
    bound="compute",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""The micro-batch is too small to fill the device, and its memory is mostly free.

What it looks like
    A launch-bound step beside gigabytes of unused device memory.

Why it costs
    The cost of a launch does not shrink with the batch, so small batches pay it more often for each sample.

Fix
    Raise the micro-batch towards the memory limit.
    plain PyTorch: `DataLoader(..., batch_size=64)`
    HF Trainer:    `TrainingArguments(per_device_train_batch_size=64, gradient_accumulation_steps=1)`
    Lightning:     `DataLoader(..., batch_size=64)` and `Trainer(accumulate_grad_batches=1)`
    Keep the effective batch where the result depends on it: a larger micro-batch with fewer accumulation steps is
    the same training. A larger effective batch is another experiment, and a batch that is pinned for comparisons
    stays pinned.

How it is found
    Launch waits beside the peak of the allocator's memory against the card's.

When it stays silent
    When the device is busy, or its memory is in use.

Not to be confused with
    T15: the same idle device, cured without changing the batch.
"""

from __future__ import annotations

import math

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_SHARE = 0.25
_USED = 0.5


def check(evidence: Evidence) -> Finding | None:
    """Find a launch-bound step with device memory to spare."""
    memory = evidence.torch.get("memory") or {}
    launch, device = evidence.wait_ms.get("launch", 0.0), evidence.step.device_ms
    total, peak = memory.get("total", 0), memory.get("peak", 0)
    if not evidence.on_gpu or device is None or not total or launch < _SHARE * evidence.step_ms:
        return None
    used = peak / total
    if used > _USED:
        return None
    step = evidence.step_ms
    fits = 0.9 / max(used, 0.02)
    # Per sample: the host's time is shared by a larger batch, the device's grows with it at worst.
    return RULE.finding(
        summary=f"{100 * used:.0f} % of the GPU's memory is used; a larger micro-batch does more with each launch.",
        gain=gain_between(evidence, max(step / fits, 0.05 * device), (max(device, step / fits), 0.9 * step)),
        evidence=[
            Observation(source="agent", text="peak of device memory", value=round(peak / 2**30, 2), unit="GiB"),
            Observation(
                source="agent", text="device idle for want of launches", value=round(launch, 3), unit="ms/step"
            ),
        ],
        fix=Fix(
            text=f"raise the micro-batch{_fitting(evidence, fits)}; lower accumulation alike to keep the effective one"
        ),
        note="gain is per sample; it changes the experiment where the effective batch changes: one that is pinned for "
        "comparisons stays pinned",
    )


def _fitting(evidence: Evidence, fits: float) -> str:
    """Say what batch would fit, were all that is used to grow with it: weights do not, so more may."""
    batch = evidence.loader.batch if evidence.loader else None
    return f" towards {math.floor(batch * fits)} (now {batch})" if batch else ""


RULE = Rule(
    id="T18",
    name="batch-too-small",
    stage="memory",
    bound="host",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)

"""Batches are copied to the device from pageable memory, or by a call that waits for the copy.

What it looks like
    `x.to(device)` takes long on the training thread, and the device copies while nothing computes.

Why it costs
    A pageable tensor is first copied into a pinned buffer by the driver, at a fraction of the bus's speed, and the
    call returns only when that is done. Neither half of the cure works alone: without pinning `non_blocking` blocks
    all the same, and without `non_blocking` a pinned copy is waited for.

Fix
    plain PyTorch: `DataLoader(..., pin_memory=True)` and `x = x.to(device, non_blocking=True)`
    HF Trainer:    `TrainingArguments(dataloader_pin_memory=True, accelerator_config={"non_blocking": True})`
    Lightning:     `DataLoader(..., pin_memory=True)` in train_dataloader(); it copies without blocking itself
    Pin in the loader, not by tensor.pin_memory() on the training thread, which is slower than not pinning.

How it is found
    Every copy between host and device is timed with its size, whether its memory is pinned and whether it blocks.

When it stays silent
    Without a GPU, with pinned and non-blocking copies, and when the copies are a small part of the step.

Not to be confused with
    X5 (the host waits for results), T4 (the batch is not there yet). A blocking copy also waits for all work queued
    before it, so its time can be the device's: the traced window tells them apart.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find host-to-device copies that are pageable or blocking and cost time."""
    if not evidence.on_gpu:
        return None
    slow = [c for c in evidence.copies if c.direction == "h2d" and (c.blocking or c.pinned is False)]
    device_copy = evidence.step.copy_ms or 0.0
    host = sum(copy.ms for copy in slow)
    waited = evidence.wait_ms.get("transfer", 0.0)
    cost = max(waited, min(device_copy, host))
    if not slow or cost < T.worth * evidence.step_ms:
        return None
    worst = max(slow, key=lambda copy: copy.ms)
    step = evidence.step_ms
    # Overlapped, a pinned copy still needs the bus; a pageable one is known to be at least twice slower than pinned.
    saved = waited + device_copy * (0.5 if worst.pinned is False else 0.0)
    compute = evidence.step.compute_ms or 0.0
    best = max(step - waited - device_copy, compute, 0.05 * step)
    likely = max(step - saved, best)
    half = "not pinned" if worst.pinned is False else "blocking"
    return RULE.finding(
        summary=f"Copies to the GPU are {half}: pin the loader's memory and copy with non_blocking=True.",
        gain=gain_between(evidence, best, (best, max(likely, best))),
        where=worst.where,
        evidence=[
            Observation(source="agent", text="host time in copies", value=round(host, 3), unit="ms/step"),
            Observation(
                source="agent", text="bytes copied", value=float(round(sum(c.bytes for c in slow))), unit="bytes/step"
            ),
            Observation(source="trace", text="device time in copies", value=round(device_copy, 3), unit="ms/step"),
        ],
        fix=Fix(
            text="set pin_memory=True in the DataLoader and non_blocking=True in the copy",
            code="x = x.to(device, non_blocking=True)",
        ),
    )


RULE = Rule(
    id="T6",
    name="blocking-host-to-device-copy",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

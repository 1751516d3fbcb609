"""Gradients are accumulated over many small micro-batches, although larger ones would fit.

What it looks like
    Many forward and backward passes for each optimizer step, a GPU that idles between launches, and free memory.

Why it costs
    The host pays its launches for each micro-batch again. One pass over four times the samples costs it once.

Fix
    A larger micro-batch and fewer accumulation steps: 4 x 16 instead of 1 x 64.
    plain PyTorch: `DataLoader(..., batch_size=16)`, and a step every 4 batches
    HF Trainer:    `TrainingArguments(per_device_train_batch_size=16, gradient_accumulation_steps=4)`
    Lightning:     `DataLoader(..., batch_size=16)` and `Trainer(accumulate_grad_batches=4)`
    The effective batch stays, and with it the training; batch norm sees other statistics, and sums are rounded in
    another order.

How it is found
    Batches that a step takes from the loader, launch waits, and the allocator's peak against the card's memory.

When it stays silent
    Without accumulation, on a GPU that is busy, and where its memory is in use.

Not to be confused with
    T18: a larger effective batch, which is another experiment.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_TIMES = 1.5
_SHARE = 0.10
_USED = 0.45


def check(evidence: Evidence) -> Finding | None:
    """Find accumulation on an idling GPU whose memory is mostly free."""
    memory = evidence.torch.get("memory") or {}
    total, peak = memory.get("total", 0), memory.get("peak", 0)
    times, step = evidence.counts.get("fetches", 1.0), evidence.step_ms
    launch, device = evidence.wait_ms.get("launch", 0.0), evidence.step.device_ms
    if not evidence.on_gpu or device is None or not total or not peak or times < _TIMES or launch < _SHARE * step:
        return None
    if peak > _USED * total:
        return None
    merged = min(times, 0.9 * total / peak)
    host = evidence.regions.get("optimizer", 0.0)
    # The host's work for forward and backward is done once for `merged` batches, the optimizer's once as before; the
    # device's own work stays, and gets no longer.
    left = max(device, host + (step - host) / merged)
    best = max(0.5 * device, host + (step - host) / times)
    return RULE.finding(
        summary=(
            f"{times:.0f} micro-batches make a step and {100 * (1 - peak / total):.0f} % of the memory is free: "
            f"take {merged:.0f} of them at once, with as many fewer accumulation steps."
        ),
        gain=gain_between(evidence, best, (left, min(step, left + 0.4 * launch))),
        evidence=[
            Observation(source="agent", text="batches a step", value=round(times, 2), unit="batches"),
            Observation(source="agent", text="peak of device memory", value=round(peak / 2**30, 2), unit="GiB"),
            Observation(
                source="agent", text="device idle for want of launches", value=round(launch, 3), unit="ms/step"
            ),
        ],
        fix=Fix(text="raise the micro-batch and lower the accumulation by the same factor"),
    )


RULE = Rule(
    id="M5",
    name="tiny-micro-batches-accumulated",
    stage="memory",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

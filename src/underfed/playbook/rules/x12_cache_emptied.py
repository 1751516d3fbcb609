"""torch.cuda.empty_cache() runs in the step, so the allocator asks the driver for memory again and again.

What it looks like
    cudaFree and cudaMalloc in every step; the same line each time.

Why it costs
    The caching allocator exists because the driver's calls are slow and wait for the device. Emptying its cache gives
    all of that back, and the next step pays for it again.

Fix
    plain PyTorch: take `torch.cuda.empty_cache()` out of the loop
    HF Trainer:    `TrainingArguments(torch_empty_cache_steps=None)`
    Lightning:     no switch: take the call out of the module's hooks and callbacks
    Where memory is short, fragmentation is the likely cause: `$ PYTORCH_ALLOC_CONF=expandable_segments:True python
    train.py` (M8).

How it is found
    The call is timed with its line; the allocator's counters show driver allocations in the steady state.

When it stays silent
    When the call does not run in the loop.

Not to be confused with
    X10 (gc.collect, often beside it).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find empty_cache in the loop."""
    calls = [sync for sync in evidence.syncs if sync.call == "empty_cache"]
    times = sum(sync.calls for sync in calls)
    if not evidence.on_gpu or times < 0.05:
        return None
    worst = max(calls, key=lambda sync: sync.ms)
    cost, step = sum(sync.ms for sync in calls), evidence.step_ms
    device = evidence.step.device_ms or 0.0
    # The call itself is half of it: the allocations that follow cost about as much again.
    best = max(device, 0.3 * step)
    return RULE.finding(
        summary=f"empty_cache() runs {times:.1f} times a step; without it the allocator reuses its memory.",
        gain=gain_between(evidence, best, (max(best, step - 2 * cost), max(best, step - cost))),
        where=worst.where,
        evidence=[
            Observation(source="agent", text="time in empty_cache()", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text="calls", value=round(times, 2), unit="calls/step"),
        ],
        fix=Fix(text="remove torch.cuda.empty_cache() from the loop"),
    )


RULE = Rule(
    id="X12",
    name="cache-emptied-in-step",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

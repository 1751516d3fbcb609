"""The caching allocator asks the driver for memory in the steady state, or frees and tries again.

What it looks like
    cudaMalloc and cudaFree in steps long after the warm-up; a growing count of allocation retries; memory that is
    reserved and not used.

Why it costs
    The driver's calls take milliseconds and wait for the device. They come when the cache was emptied, when sizes
    change from step to step, or when memory is so full that a request fails and the whole cache is freed for it.

Fix
    Against fragmentation let segments grow (PYTORCH_CUDA_ALLOC_CONF before torch 2.9); take
    torch.cuda.empty_cache() out of the loop (X12); pad to a few sizes, the largest one first; a smaller batch where
    the memory is simply full.
    plain PyTorch: `$ PYTORCH_ALLOC_CONF=expandable_segments:True python train.py`
    HF Trainer:    the same variable; `TrainingArguments(torch_empty_cache_steps=None)`
    Lightning:     the same variable; no switch of its own

How it is found
    In a trace, the time in cudaMalloc and cudaFree during steady steps. In a run, the allocator's own counters between
    two moments behind the warm-up.

When it stays silent
    When no such call is made in the steady state, and where empty_cache() was seen to run (X12).

Not to be confused with
    X12, which saw the call that empties the cache. T18: memory that is free.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import floor_ms, gain_between
from underfed.playbook.rule import Rule

_RETRIES = 0.01
#: A trace of fewer steps, or with none marked, can hold the warm-up, in which the cache fills.
_STEPS = 2


def check(evidence: Evidence) -> Finding | None:
    """Find an allocator that does not live from its cache."""
    warm = evidence.kind == "trace" and evidence.steps < _STEPS
    if not evidence.on_gpu or warm or any(sync.call == "empty_cache" for sync in evidence.syncs):
        return None
    calls, cost = _traced(evidence)
    memory = evidence.torch.get("memory_rate") or {}
    retries, allocations = memory.get("retries", 0.0), memory.get("driver_allocs", 0.0)
    step = evidence.step_ms
    dear = cost >= T.worth * step and calls >= 1
    if not step or not (dear or retries >= _RETRIES):
        return None
    best = max(floor_ms(evidence), 0.3 * step)
    # The calls also wait for the device and empty the launch queue, which costs up to as much again.
    gain = gain_between(evidence, best, (max(best, step - 2 * cost), max(best, step - cost))) if dear else None
    what = (
        f"asks the driver {calls:.1f} times a step" if dear else f"had to retry {100 * retries:.0f} times in 100 steps"
    )
    return RULE.finding(
        summary=f"The caching allocator {what}; the cache is emptied, fragmented or too small.",
        gain=gain,
        evidence=[
            Observation(source="trace", text="time in cudaMalloc and cudaFree", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text="allocations from the driver", value=allocations, unit="a step"),
            Observation(source="agent", text="retries after freeing the cache", value=retries, unit="a step"),
        ],
        fix=Fix(
            text="take empty_cache() out of the loop; against fragmentation, let segments grow",
            code="PYTORCH_ALLOC_CONF=expandable_segments:True",
        ),
        note=None if dear else "what a retry costs was not timed; many of them end in an out-of-memory error",
    )


def _traced(evidence: Evidence) -> tuple[float, float]:
    """Calls of the driver for device memory a step, and their time in ms."""
    trace = evidence.trace
    if trace is None or evidence.kind != "trace":
        return 0.0, 0.0
    rows = [row for row in trace.calls if row.kind == "allocator" and "Host" not in row.name]
    steps = max(1, evidence.steps)
    return sum(row.count for row in rows) / steps, sum(row.total_ns for row in rows) * 1e-6 / steps


RULE = Rule(
    id="M8",
    name="allocator-asks-driver-in-step",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

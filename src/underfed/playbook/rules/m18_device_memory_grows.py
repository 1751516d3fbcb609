"""The GPU's memory grows from step to step, so the run will end in an out-of-memory error.

What it looks like
    A run that fails after hours with the same batch size that worked at the start.

Why it costs
    Something keeps tensors alive: a list of losses with their graphs, outputs that are kept for metrics, a growing
    cache of sizes. The error comes when much is already paid for.

Fix
    plain PyTorch: `losses.append(loss.detach())`, or numbers read every N steps; kept outputs moved to the host
    HF Trainer:    `TrainingArguments(eval_accumulation_steps=8, batch_eval_metrics=True)` where evaluation keeps
    outputs
    Lightning:     `self.log("loss", loss.detach())`; keep no outputs in attributes of the module
    What holds the memory (T22, M19): `torch.cuda.memory._record_memory_history()` before the loop, and
    `torch.cuda.memory._dump_snapshot("s.pickle")` behind it, shown by pytorch.org/memory_viz;
    `torch.cuda.memory_summary()` for a table.

How it is found
    The allocator's peak of reserved memory, which grows through the whole steady part of the run.

When it stays silent
    Where the peak is reached early and stays, as with any steady loop.

Not to be confused with
    M8: memory that is there and fragmented. U9: memory of the host.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule

_GIB = 2.0**30
#: Growth below this many bytes a step, or that would take more steps than this to fill the card, is not worth a word.
_LEAST = 1e4
_STEPS = 200_000


def check(evidence: Evidence) -> Finding | None:
    """Find reserved memory that keeps growing."""
    memory, rate = evidence.torch.get("memory") or {}, evidence.torch.get("memory_rate") or {}
    total, peak = memory.get("total", 0), memory.get("peak", 0)
    slowest = min(rate.get("peak_first", 0.0), rate.get("peak_last", 0.0))
    if not evidence.on_gpu or not total or slowest < _LEAST:
        return None
    left = (total - peak) / slowest
    if left > _STEPS:
        return None
    return RULE.finding(
        summary=(
            f"Reserved GPU memory grows by {slowest / 2**20:.2g} MiB a step and fills the card in about "
            f"{left:,.0f} steps."
        ),
        evidence=[
            Observation(source="agent", text="peak of device memory", value=round(peak / _GIB, 2), unit="GiB"),
            Observation(source="agent", text="growth", value=round(slowest / 2**20, 4), unit="MiB/step"),
        ],
        fix=Fix(text="keep no tensors with their graph", code="losses.append(loss.detach())"),
        helps_now=False,
        note="it ends the run rather than slows it: mend it before a long one",
    )


RULE = Rule(
    id="M18",
    name="device-memory-grows",
    stage="memory",
    bound="unknown",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""Python's garbage collector runs in the step for a noticeable time.

What it looks like
    gc.collect() in the loop, or regular pauses of tens of milliseconds in a program with millions of Python objects.

Why it costs
    A full collection walks every container object of the process while the training thread waits. In distributed
    training each rank collects at its own moment and all the others wait for it.

Fix
    Take gc.collect() out of the loop. Where collections come by themselves:
    plain PyTorch: `gc.freeze()` after set-up, `gc.disable()`, and `gc.collect(1)` every N steps on all ranks at
    once
    HF Trainer:    the same in `on_train_begin` and `on_step_end` of a `TrainerCallback`
    Lightning:     the same in `on_train_start` and `on_train_batch_end` of a `Callback`

How it is found
    The interpreter's own callbacks time each collection on the training thread.

When it stays silent
    When collections are a small share of the step.

Not to be confused with
    X12 (torch.cuda.empty_cache).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_without
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find collections that take a noticeable part of the step."""
    cost = evidence.regions.get("gc", 0.0)
    if cost <= 0 or cost < T.worth * evidence.step_ms:
        return None
    place = evidence.top("gc")
    return RULE.finding(
        summary=f"Garbage collection takes {100 * cost / evidence.step_ms:.0f} % of the step; take it out of the loop.",
        gain=gain_without(evidence, cost, exact=True),
        where=place.where if place else None,
        evidence=[
            Observation(source="agent", text="time in collections", value=round(cost, 3), unit="ms/step"),
            Observation(
                source="agent",
                text="collections",
                value=round(evidence.counts.get("collections", 0.0), 2),
                unit="a step",
            ),
        ],
        fix=Fix(text="take gc.collect() out of the loop, or freeze what lives long", code="gc.freeze()"),
    )


RULE = Rule(
    id="X10",
    name="garbage-collection-in-step",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

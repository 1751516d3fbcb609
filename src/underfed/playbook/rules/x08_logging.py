"""Logging, progress bars or plots take much of the step on the training thread.

What it looks like
    Time behind the optimizer step, in print, logging, a tracker's log() or a figure.

Why it costs
    Each line is formatted, written and perhaps flushed before the next step begins; values on the device are
    waited for.

Fix
    Log every N steps, let the tracker batch its writes, do not fsync, draw figures and histograms after training.
    plain PyTorch: `if step % 50 == 0: log(loss)`; of hooks that log histograms: `handle.remove()` but every N steps
    HF Trainer:    `TrainingArguments(logging_steps=50)`
    Lightning:     `Trainer(log_every_n_steps=50)`

How it is found
    Stack samples in logging code, with the user's line that calls it.

When it stays silent
    When it is a small share of the step.

Not to be confused with
    X5 (the value that is logged makes the host wait), X9 (other work).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule
from underfed.playbook.stalls import stall_finding

_KINDS = ("logging", "progress", "plotting")


def check(evidence: Evidence) -> Finding | None:
    """Find logging that holds up the training thread."""
    fix = Fix(text="log every N steps and without flushing each line", code="if step % 50 == 0: log(...)")
    spots = [spot for spot in evidence.spots if spot.kind in _KINDS]
    worst = max(spots, key=lambda spot: spot.ms, default=None)
    if worst is not None and "histogram" in worst.leaf:
        fix = Fix(text="histograms of weights or activations every N steps, or their mean and spread instead")
        return stall_finding(
            RULE, evidence, _KINDS, what="Logging of histograms", advice="log them every N steps", fix=fix
        )
    return stall_finding(RULE, evidence, _KINDS, what="Logging", advice="log less often", fix=fix)


RULE = Rule(
    id="X8",
    name="logging-on-training-thread",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

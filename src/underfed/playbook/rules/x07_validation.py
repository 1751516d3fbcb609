"""Validation takes a large share of the run.

What it looks like
    Every so many steps training pauses while another loader is read under no_grad.

Why it costs
    Nothing is learnt meanwhile. A validation set read with few workers also waits for its own input.

Fix
    Validate less often or on a fixed part of the set; use torch.inference_mode(), a larger batch and workers for the
    validation loader. Fewer validations change which checkpoint is picked, so compare runs at equal settings.
    HF Trainer: eval_steps; Lightning: Trainer(val_check_interval=..., limit_val_batches=...).

How it is found
    Time in and behind another loader than the one that feeds the optimizer steps.

When it stays silent
    When validation is a small share of the run.

Not to be confused with
    T5 (starting workers at the epoch's border), X6 (checkpoints).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule
from underfed.playbook.stalls import stall_finding


def check(evidence: Evidence) -> Finding | None:
    """Find validation that takes a large share of the run."""
    fix = Fix(
        text="validate less often, on fewer batches, with a larger batch and loader workers",
        code="with torch.inference_mode(): ...",
    )
    return stall_finding(RULE, evidence, ("eval",), what="Validation", advice="validate less often or faster", fix=fix)


RULE = Rule(
    id="X7",
    name="validation-on-training-thread",
    stage="free",
    bound="host",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)

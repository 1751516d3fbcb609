"""Other Python work on the training thread holds up the step: metrics, copies of weights, file writes, sleeps.

What it looks like
    A line of the loop, usually behind the optimizer step, where the training thread spends much of its time.

Why it costs
    While it runs nothing is launched, so the device runs dry; on a CPU-only run it adds to every step.

Fix
    Do it every N steps, move it to a thread or process, or keep it on the device: metrics on the GPU with one read
    at the end, an average of the weights (EMA) on the GPU.
    plain PyTorch: `torch._foreach_lerp_(averages, list(model.parameters()), 1 - decay)`, or
    `torch.optim.swa_utils.AveragedModel(model)` on the model's device
    HF Trainer:    `TrainingArguments(batch_eval_metrics=True)` for metrics; an average in `on_step_end` of a
    callback
    Lightning:     `EMAWeightAveraging(decay=0.999)` for an average; torchmetrics on the device for metrics

How it is found
    Stack samples outside the timed calls, the model and the known kinds of work; the line with most of them is named.
    Where that line copies from the GPU as well, it is work on the CPU with what the GPU has: an EMA or a metric.

When it stays silent
    When there is no such line, or it is a small share of the step.

Not to be confused with
    X6 (checkpoints), X7 (validation), X8 (logging), X3 (making input).
"""

from __future__ import annotations

import msgspec

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule
from underfed.playbook.stalls import stall_finding


def check(evidence: Evidence) -> Finding | None:
    """Find work on the training thread that has no rule of its own."""
    fix = Fix(text="do it every N steps, in another process, or on the device", code="if step % 50 == 0: ...")
    found = stall_finding(
        RULE, evidence, ("stall",), what="Other work", advice="do it less often or elsewhere", fix=fix
    )
    down = [copy for copy in evidence.copies if copy.direction == "d2h" and found and copy.where == found.where]
    if found is None or not down:
        return found
    moved = sum(copy.bytes for copy in down)
    onto: Finding = msgspec.structs.replace(
        found,
        summary=found.summary.replace("Other work", "Work on the CPU with what was copied from the GPU (EMA, metrics)"),
        evidence=[
            *found.evidence,
            Observation(source="agent", text="copied to the host there", value=float(round(moved)), unit="bytes/step"),
        ],
        fix=Fix(
            text="keep averages of weights and metrics on the GPU, and read them every N steps",
            code="torch._foreach_lerp_(averages, list(model.parameters()), 1 - decay)",
        ),
    )
    return onto


RULE = Rule(
    id="X9",
    name="work-on-training-thread",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

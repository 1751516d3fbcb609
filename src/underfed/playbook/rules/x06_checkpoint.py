"""Checkpoints are written on the training thread, and the device waits until they are on disk.

What it looks like
    Every so many steps one step is many times longer than the others, with the disk busy.

Why it costs
    torch.save copies all weights and optimizer states to the host, pickles and writes them before it returns.

Fix
    Save less often; copy to pinned memory and write in a thread or process; write to local disk first and move
    later.
    plain PyTorch: `torch.distributed.checkpoint.async_save(state, checkpoint_id=path)`
    HF Trainer:    `TrainingArguments(save_steps=5000, save_only_model=True)` where it need not resume
    Lightning:     `ModelCheckpoint(every_n_train_steps=5000)` with `Trainer(plugins=[AsyncCheckpointIO()])`

How it is found
    Stack samples inside torch.save, distributed checkpointing or safetensors, spread over all steps.

When it stays silent
    When saving is a small share of the whole run.

Not to be confused with
    X7 (validation), X8 (logging): they come at intervals as well.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule
from underfed.playbook.stalls import stall_finding


def check(evidence: Evidence) -> Finding | None:
    """Find checkpoints that hold up the training thread."""
    fix = Fix(
        text="save less often, or write in the background",
        code="torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
    )
    return stall_finding(
        RULE,
        evidence,
        ("checkpoint",),
        what="Writing checkpoints",
        advice="save less often or in the background",
        fix=fix,
    )


RULE = Rule(
    id="X6",
    name="checkpoint-on-training-thread",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""torch.nn.DataParallel drives several GPUs from one Python process.

What it looks like
    Several GPUs, the first one busier than the others, and little gain over one.

Why it costs
    Each step scatters the batch, copies the model to every GPU, runs one thread for each under one interpreter lock,
    and gathers outputs and gradients on the first.

Fix
    One process for each GPU, gradients exchanged while the backward pass runs.
    plain PyTorch: `$ torchrun --nproc-per-node=N train.py` with `DistributedDataParallel(model)`
    HF Trainer:    `$ torchrun --nproc-per-node=N train.py`; the Trainer does the rest
    Lightning:     `Trainer(strategy="ddp", devices=2)`
    The loader needs a DistributedSampler, and batch norm sees smaller batches.

How it is found
    The range that torch records around DataParallel's forward pass, in the trace.

When it stays silent
    On one GPU, and with DistributedDataParallel.

Not to be confused with
    T23: collectives that are not hidden.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find DataParallel over several devices in a trace."""
    trace = evidence.trace
    if trace is None or not trace.clues.data_parallel or len(trace.devices) < 2:
        return None
    step, busy = evidence.step_ms, evidence.step.compute_ms or 0.0
    many = len(trace.devices)
    return RULE.finding(
        summary=f"DataParallel drives {many} GPUs from one process; one process each (DDP) does not wait.",
        gain=gain_between(evidence, max(0.8 * busy, 0.02 * step)),
        bound=evidence.bound if evidence.bound != "unknown" else None,
        evidence=[
            Observation(source="trace", text="GPUs driven by one process", value=float(len(trace.devices)), unit="GPUs")
        ],
        fix=Fix(
            text="start one process for each GPU and use DistributedDataParallel",
            code=f"torchrun --nproc-per-node={many} train.py",
        ),
    )


RULE = Rule(
    id="X56",
    name="data-parallel-in-one-process",
    stage="comms",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

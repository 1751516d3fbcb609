"""The loader has more computing workers than the run has CPUs.

What it looks like
    Many workers, all CPUs full, each fetch several times longer than its CPU time; fewer workers are no slower.

Why it costs
    Workers that compute only take turns. Each one holds memory and a queue, takes CPU from the training thread, and
    adds to the start of every epoch.

Fix
    Set num_workers to the CPUs that the run may use, or one less when the training thread computes on the CPU as
    well.
    plain PyTorch: `DataLoader(..., num_workers=N)`
    HF Trainer:    `TrainingArguments(dataloader_num_workers=N)`
    Lightning:     `DataLoader(..., num_workers=N)` in train_dataloader()

How it is found
    The number of workers against the usable CPUs (cgroup quota and affinity), with fetches that compute.

When it stays silent
    When fetches wait for storage: then workers beyond the CPUs do overlap useful waits.

Not to be confused with
    T8, which says why there is not enough CPU; this rule says that more workers do not change it.
"""

from __future__ import annotations

import math

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule

_OVER = 1.25


def check(evidence: Evidence) -> Finding | None:
    """Find more computing workers than CPUs."""
    model = feed(evidence)
    if model is None or model.cpus is None or not model.loader.workers or model.waiting:
        return None
    cpus = max(1, math.floor(model.cpus))
    stretched = model.fetch.wall > 1.2 * model.fetch.cpu
    full = model.crowded or (model.cpu_used or 0.0) >= 0.5
    if model.loader.workers < _OVER * model.cpus or not full or not stretched:
        return None
    step = evidence.step_ms
    return RULE.finding(
        summary=f"{model.loader.workers} workers compute on {model.cpus:g} CPUs; {cpus} do the same work.",
        gain=gain_between(evidence, min(step, max(model.rest, 0.6 * step)), (0.9 * step, step)),
        where=model.loader.made_at,
        evidence=[
            Observation(source="agent", text="workers", value=float(model.loader.workers), unit="processes"),
            Observation(source="host", text="CPUs the run may use", value=model.cpus, unit="CPUs"),
            Observation(source="agent", text="CPUs kept busy by fetches", value=model.cpu_used, unit="share"),
        ],
        fix=Fix(
            text=f"set num_workers={cpus} (now {model.loader.workers})", code=f"DataLoader(..., num_workers={cpus})"
        ),
    )


RULE = Rule(
    id="X1",
    name="more-workers-than-cpus",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

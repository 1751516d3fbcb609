"""Host memory runs out: workers fill the limit, or memory grows steadily towards it.

What it looks like
    A worker that ends with a bare "Killed", a run that slows down as the page cache shrinks, or memory that climbs
    from epoch to epoch.

Why it costs
    Each worker holds its own share of the dataset: reading a Python object writes its reference count, so pages that
    were shared with the parent are copied one after the other. Before the limit is reached the kernel drops the file
    cache, and storage gets slow; at the limit it kills.

Fix
    Fewer workers; a lower prefetch_factor; datasets in arrays or tensors instead of lists and dicts of Python
    objects; memory-mapped files. Do not keep batches or losses that hold a graph.
    plain PyTorch: `DataLoader(..., num_workers=2, prefetch_factor=1)`
    HF Trainer:    `TrainingArguments(dataloader_num_workers=2, dataloader_prefetch_factor=1)`
    Lightning:     `DataLoader(..., num_workers=2, prefetch_factor=1)` in train_dataloader()

How it is found
    The control group's use without droppable cache against its limit (the machine's memory where there is none), its
    growth over the later part of the run, the kernel's count of kills, and the resident memory of the workers.

When it stays silent
    With memory to spare that does not grow; growth counts from a minute on.

Not to be confused with
    M18, which is the GPU's memory. U8: slow storage, which a shrinking file cache can cause.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule

_FULL = 0.92
#: A run that would fill its limit within this many minutes is told so.
_SOON_MIN = 120.0
_GIB = 2.0**30


def check(evidence: Evidence) -> Finding | None:
    """Find a run that is short of host memory, or will be."""
    memory = evidence.memory
    if memory is None or memory.limit <= 0:
        return None
    free = memory.limit - memory.used
    left = free / memory.growth if memory.growth else None
    growing = left is not None and left < _SOON_MIN and (memory.growth or 0.0) > 0.002 * memory.limit
    # A machine without a limit is shared: that it is full says nothing of this run, and a kill there is not counted.
    full = memory.of_group and memory.used >= _FULL * memory.limit
    if not (growing or full or memory.kills):
        return None
    workers = evidence.loader.workers if evidence.loader else 0
    whose = "the control group's limit" if memory.of_group else "the machine's memory"
    if memory.kills:
        what = f"The kernel killed {memory.kills} process{'es' if memory.kills > 1 else ''} of this group for memory"
    elif growing:
        what = f"Host memory grows by {(memory.growth or 0) / _GIB:.2g} GiB a minute and fills in about {left:.0f} min"
    else:
        what = f"{100 * memory.used / memory.limit:.0f} % of {whose} is in use without cache"
    cause = f"; {workers} workers hold their own copies of what they read" if workers else ""
    return RULE.finding(
        summary=f"{what}{cause}.",
        evidence=[
            Observation(source="host", text=whose, value=round(memory.limit / _GIB, 2), unit="GiB"),
            Observation(
                source="host", text="most in use, without cache", value=round(memory.used / _GIB, 2), unit="GiB"
            ),
            Observation(
                source="host",
                text="the largest worker, shared memory included",
                value=round(memory.worker / _GIB, 3) if memory.worker else None,
                unit="GiB",
            ),
            Observation(
                source="host",
                text="growth",
                value=round(memory.growth / 2**20, 2) if memory.growth else None,
                unit="MiB/min",
            ),
        ],
        fix=Fix(text="fewer workers, and datasets in arrays or memory-mapped files instead of Python objects"),
        helps_now=False,
        note="it ends the run rather than slows it: mend it before a long one",
    )


RULE = Rule(
    id="U9",
    name="host-memory-runs-out",
    stage="box",
    bound="unknown",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""Of several loader workers only one delivers batches; the others are idle.

What it looks like
    An iterable dataset with num_workers above 1, and no speed-up from it.

Why it costs
    A dataset that yields only in one worker, or has a single shard, is as slow as one worker whatever their number.

Fix
    Split the source over the workers, or use at least as many shards as workers. Check that each sample still comes
    exactly once.
    plain PyTorch: in `__iter__`: `info = torch.utils.data.get_worker_info()`, then `items[info.id ::
    info.num_workers]`
    HF Trainer:    the same in `__iter__`; of a Dataset on disk: `dataset.to_iterable_dataset(num_shards=64)`
    Lightning:     the same in `__iter__` of the dataset that train_dataloader() returns a loader of

How it is found
    Batches counted by worker.

When it stays silent
    With one worker, and when the batches are spread over the workers.

Not to be confused with
    T4 (too few workers), T7 (bursts).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed, hot_place
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find a loader whose batches nearly all come from one of several workers."""
    model = feed(evidence)
    if model is None or not model.one_feeds or model.wait < T.worth * evidence.step_ms:
        return None
    counts = model.fetch.by_worker
    total = sum(counts.values())
    best = max(model.rest, model.supply(model.loader.workers))
    return RULE.finding(
        summary=f"One of {model.loader.workers} workers delivers {max(counts.values())} of {total} batches.",
        gain=gain_between(evidence, 0.9 * best, (best, 1.5 * best)),
        where=model.loader.item_at or hot_place(evidence),
        evidence=[
            Observation(source="agent", text=f"batches from worker {worker}", value=float(count), unit="batches")
            for worker, count in sorted(counts.items())
        ],
        fix=Fix(
            text="split the source over the workers with get_worker_info()",
            code="info = get_worker_info(); items = items[info.id::info.num_workers] if info else items",
        ),
    )


RULE = Rule(
    id="X2",
    name="one-worker-feeds-all",
    stage="dataloader",
    bound="data",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)

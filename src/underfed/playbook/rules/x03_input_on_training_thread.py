"""The loop makes its own batches on the training thread: a generator, an iterator or a get_batch() function.

What it looks like
    No DataLoader in the loop, or one behind a generator of the program's own that does work for each batch.

Why it costs
    The device waits while Python reads, tokenises or stacks.

Fix
    Put the same code behind a Dataset and a DataLoader with workers, or fill a small queue from a process ahead of
    the loop. What does not change between epochs can be computed once.
    plain PyTorch: `DataLoader(MyDataset(), batch_size=64, num_workers=4, persistent_workers=True)`
    HF Trainer:    `Trainer(model=model, args=args, train_dataset=MyDataset())` with dataloader_num_workers
    Lightning:     return that DataLoader from train_dataloader()

How it is found
    Stack samples that stand in the header of the loop around the optimizer step, in a generator that it pulls from, or
    in a function that it calls for its input.

When it stays silent
    When the wait is inside a DataLoader (T4 to T8), and when making the batch is quick.

Not to be confused with
    X9 (other work on the training thread).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between, slack
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find input that is made outside every DataLoader."""
    inside = evidence.regions.get("data", 0.0) + evidence.regions.get("start", 0.0)
    outside = evidence.wait_ms.get("data", 0.0) - inside
    if outside <= 0 or outside < T.worth * evidence.step_ms or outside < inside:
        return None
    own = [spot for spot in evidence.spots if spot.kind == "data"]
    place = max(own, key=lambda spot: spot.ms, default=None)
    step, rest = evidence.step_ms, evidence.rest_ms("data")
    overlapped = max(rest, outside)
    return RULE.finding(
        summary="The loop makes its batches on the training thread; make them ahead, in worker processes.",
        gain=gain_between(evidence, min(0.9, slack(evidence)) * rest, (rest, min(step, overlapped * 1.1))),
        where=place.where if place else None,
        evidence=[
            Observation(source="agent", text="making input, by samples", value=round(outside, 3), unit="ms/step"),
            Observation(source="agent", text="the loop without it", value=round(rest, 3), unit="ms/step"),
        ],
        fix=Fix(
            text="put the input code behind a Dataset and a DataLoader with workers",
            code="DataLoader(MyDataset(...), batch_size=B, num_workers=4, persistent_workers=True)",
        ),
    )


RULE = Rule(
    id="X3",
    name="input-made-on-training-thread",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

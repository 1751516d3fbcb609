"""Fetch times vary so much that a shallow prefetch queue runs empty, although the workers keep up on average.

What it looks like
    Most steps get their batch at once; now and then, often every `num_workers`-th time, the loop waits long.

Why it costs
    `prefetch_factor` batches wait ready for each worker (2 by default). A fetch that takes several times longer than
    usual empties the queue, and what was lost is never caught up.

Fix
    plain PyTorch: `DataLoader(..., prefetch_factor=4)`
    HF Trainer:    `TrainingArguments(dataloader_prefetch_factor=4)`
    Lightning:     `DataLoader(..., prefetch_factor=4)` in train_dataloader()
    It costs memory: prefetch_factor x num_workers batches are held. Batches come in order, so one very slow sample
    still blocks those behind it; smoothing cannot make up for a rate that is too low.

How it is found
    The spread of the fetch times (95th percentile over median) beside a mean supply that meets the demand.

When it stays silent
    When the mean supply is too low (T4, T8, U8), and when fetch times are even.

Not to be confused with
    T4 and T8, where no depth of queue helps.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between, slack
from underfed.playbook.loader_model import feed, hot_place
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find waits that come from the spread of the fetch times and not from their mean."""
    model = feed(evidence)
    if model is None or not model.bursty or model.wait < T.worth * evidence.step_ms:
        return None
    depth = model.loader.prefetch or 2
    wanted = 2 * depth
    step = evidence.step_ms
    # A deeper queue fills only from what the workers make beyond the demand: the less to spare, the less it bridges.
    spare = 1.0 - model.mean_supply / model.rest
    least, most = min(max(0.02, spare), 0.5), min(0.9, 0.6 + 1.5 * spare)
    best = slack(evidence) * (step - model.wait)
    return RULE.finding(
        summary=f"Fetches come in bursts and {depth} batches a worker do not bridge them; queue {wanted}.",
        gain=gain_between(evidence, best, (step - most * model.wait, step - least * model.wait)),
        where=model.loader.made_at,
        evidence=[
            Observation(source="agent", text="fetch, median", value=round(model.fetch.wall_median, 3), unit="ms"),
            Observation(source="agent", text="fetch, 95th percentile", value=round(model.fetch.wall_p95, 3), unit="ms"),
            Observation(source="agent", text="mean supply of a batch", value=round(model.mean_supply, 3), unit="ms"),
            Observation(source="agent", text=f"slow fetches at {hot_place(evidence) or 'an unknown line'}"),
        ],
        fix=Fix(
            text=f"set prefetch_factor={wanted} (now {depth})",
            code=f"DataLoader(..., prefetch_factor={wanted})",
        ),
    )


RULE = Rule(
    id="T7",
    name="queue-too-shallow-for-bursts",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

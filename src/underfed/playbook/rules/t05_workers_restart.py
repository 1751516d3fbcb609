"""Loader workers are started anew at every epoch, and the loop waits for them each time.

What it looks like
    A pause at the start of every epoch, long against the epoch; the more workers, the longer.

Why it costs
    With `persistent_workers=False` (the default) the workers end with the epoch. The next one starts new processes,
    which import, unpickle the dataset and fill the queue again before the first batch arrives.

Fix
    plain PyTorch: `DataLoader(..., num_workers=N, persistent_workers=True)`
    HF Trainer:    `TrainingArguments(dataloader_num_workers=N, dataloader_persistent_workers=True)`
    Lightning:     `DataLoader(..., num_workers=N, persistent_workers=True)` in train_dataloader()
    Where the dataset is small, num_workers=0 can be faster still. More workers make this worse.

How it is found
    The time in which a new iterator is made, and the wait for an epoch's first batch above the usual wait, both timed
    exactly and spread over the epoch's steps. A trace shows silence before a long wait for a loader with workers.

When it stays silent
    With persistent workers or none, with a single epoch, and when the border is a small part of the epoch.

Not to be confused with
    T4 (waits inside the epoch), X7 (a validation pass at the epoch's end).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between, slack
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find epochs so short that starting their workers matters."""
    if evidence.kind == "trace":
        return _traced(evidence)
    model, epochs = feed(evidence), evidence.epochs
    if model is None or epochs is None or model.loader.workers == 0 or model.loader.persistent:
        return None
    if model.border < T.worth * evidence.step_ms:
        return None
    step, border = evidence.step_ms, model.border
    # With workers kept, an epoch's first batches are still asked for only when it begins: one fetch's time stays.
    kept = min(model.fetch.wall / max(epochs.steps, 1.0), 0.95 * border)
    saved = border - kept
    least = step - saved - 0.5 * kept
    best = max(slack(evidence) * least, 0.02 * step)
    gain = gain_between(evidence, best, (max(step - 1.1 * saved, least), step - 0.8 * saved))
    more = model.wait >= T.worth * step and model.lacks_workers()
    return RULE.finding(
        summary=(
            f"{model.loader.workers} workers start anew for every epoch of about {epochs.steps:.0f} steps; "
            "keep them alive (persistent_workers=True), and do not add more."
        ),
        gain=gain,
        where=model.loader.made_at,
        evidence=[
            Observation(source="agent", text="starting workers", value=round(epochs.start_ms, 3), unit="ms/epoch"),
            Observation(
                source="agent",
                text="extra wait for an epoch's first batch",
                value=round(epochs.first_wait_ms, 3),
                unit="ms/epoch",
            ),
            Observation(source="agent", text="epochs seen", value=float(epochs.count), unit="epochs"),
        ],
        fix=Fix(
            text="set persistent_workers=True",
            code=f"DataLoader(..., num_workers={model.loader.workers}, persistent_workers=True)",
        ),
        helps_now=not more,
        note="the wait inside the epochs is longer: T4's fix comes first, and keeps the workers as well"
        if more
        else None,
    )


def _traced(evidence: Evidence) -> Finding | None:
    """In a trace the loop falls silent while the workers start, and then waits for their first batch."""
    epochs, step = evidence.epochs, evidence.step_ms
    if epochs is None or epochs.steps <= 0:
        return None
    start, wait = epochs.start_ms / epochs.steps, epochs.first_wait_ms / epochs.steps
    if start + wait < T.worth * step:
        return None
    # Kept workers need no start; what is left of the wait is one fetch, which the trace does not show on its own.
    best = max(step - start - wait, min(evidence.step.device_ms or 0.0, step))
    return RULE.finding(
        summary=(
            f"Loader workers are started anew, {epochs.count} time{'s' if epochs.count > 1 else ''} in "
            f"{evidence.steps} steps, and the loop waits for them; keep them alive (persistent_workers=True)."
        ),
        gain=gain_between(evidence, best, (step - start - 0.5 * wait, step - start)),
        evidence=[
            Observation(source="trace", text="starting workers", value=round(epochs.start_ms, 3), unit="ms/start"),
            Observation(
                source="trace", text="wait for their first batch", value=round(epochs.first_wait_ms, 3), unit="ms/start"
            ),
        ],
        fix=Fix(text="set persistent_workers=True", code="DataLoader(..., persistent_workers=True)"),
    )


RULE = Rule(
    id="T5",
    name="workers-restart-each-epoch",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

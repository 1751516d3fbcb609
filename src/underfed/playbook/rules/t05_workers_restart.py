"""Loader workers are started anew at every epoch, and the loop waits for them each time.

What it looks like
    A pause at the start of every epoch, long against the epoch; the more workers, the longer.

Why it costs
    With `persistent_workers=False` (the default) the workers end with the epoch. The next one starts new processes,
    which import, unpickle the dataset and fill the queue again before the first batch arrives.

Fix
    plain PyTorch: DataLoader(dataset, num_workers=N, persistent_workers=True)
    HF Trainer:    TrainingArguments(dataloader_persistent_workers=True)
    Lightning:     DataLoader(..., persistent_workers=True)
    Where the dataset is small, num_workers=0 can be faster still. More workers make this worse.

How it is found
    The time in which a new iterator is made, and the wait for an epoch's first batch above the usual wait, both timed
    exactly and spread over the epoch's steps.

When it stays silent
    With persistent workers or none, with a single epoch, and when the border is a small part of the epoch.

Not to be confused with
    T4 (waits inside the epoch), X7 (a validation pass at the epoch's end).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find epochs so short that starting their workers matters."""
    model, epochs = feed(evidence), evidence.epochs
    if model is None or epochs is None or model.loader.workers == 0 or model.loader.persistent:
        return None
    if model.border < T.worth * evidence.step_ms:
        return None
    step, border = evidence.step_ms, model.border
    # With workers kept, an epoch's first batches are still asked for only when it begins: one fetch's time stays.
    kept = min(model.fetch.wall / max(epochs.steps, 1.0), 0.95 * border)
    saved = border - kept
    gain = gain_between(evidence, max(step - saved - 0.5 * kept, 0.02 * step), (step - 1.1 * saved, step - 0.8 * saved))
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


RULE = Rule(
    id="T5",
    name="workers-restart-each-epoch",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

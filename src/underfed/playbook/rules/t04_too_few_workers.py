"""The DataLoader has no or too few worker processes, so the loop waits while batches are made.

What it looks like
    With `num_workers=0` (the default) the training thread makes every batch itself: the wait for input is as long as
    the fetch. With too few workers each fetch is overlapped, but all of them together are slower than the loop.

Why it costs
    Making batches and training take turns instead of running side by side, and the device idles meanwhile.

Fix
    plain PyTorch: `DataLoader(..., num_workers=N)`
    HF Trainer:    `TrainingArguments(dataloader_num_workers=N)`
    Lightning:     `DataLoader(..., num_workers=N)` in train_dataloader()
    N is worked out from the time of a fetch, the demand of the loop and the CPUs that the run may really use.

How it is found
    Every fetch is timed, in the training process or in the workers: wall, CPU time and batches a step. N is the
    least number of workers whose supply meets the loop's demand, capped by the usable CPUs where fetches compute. A
    trace shows only the wait, so there the finding says what it cannot tell.

    A worker more than memory has room for (U9) is not advised, and what other processes keep busy widens the range.

When it stays silent
    When the wait sits at epoch borders (T5), when the CPUs are already saturated (T8, X1), when one of several workers
    delivers everything (X2), and when the device is busy.

Not to be confused with
    T5 (workers start anew each epoch), T7 (enough on average, but in bursts), T8 (the transform needs more CPU than
    there is), U8 (storage is slow).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find a loader whose workers are too few for the loop while CPUs are free."""
    seen = evidence.trace.loader if evidence.kind == "trace" and evidence.trace is not None else None
    if seen is not None and seen.workers:
        return _traced(evidence)
    model = feed(evidence)
    if model is None or model.wait < T.worth * evidence.step_ms:
        return None
    now, wanted = model.loader.workers, model.sensible()
    if not model.lacks_workers():
        return None
    best = max(model.rest, 0.8 * model.shared_cpus(evidence.on_gpu), 0.7 * model.supply(wanted))
    likely = max(model.rest, model.supply(wanted), model.shared_cpus(evidence.on_gpu))
    slack = 1.0 if model.waiting else 1.25
    others = max(likely, model.supply(wanted, shared=True))
    slow = max(slack * others + 0.05 * (evidence.step_ms - others), model.displaced(evidence.on_gpu))
    gain = gain_between(evidence, 0.9 * best, (likely, slow))
    if now > 0 and model.waiting:
        gain = gain_between(evidence, 0.9 * best, (likely, evidence.step_ms))
    how = "in the training process itself" if now == 0 else f"by {now} worker{'s' if now > 1 else ''}"
    kind = "waiting" if model.waiting else "computing" if model.computing else "computing and waiting"
    return RULE.finding(
        summary=f"Batches are made {how}; num_workers={wanted} would make them beside the training.",
        gain=gain,
        where=model.loader.made_at or model.loader.item_at,
        evidence=[
            Observation(
                source="agent", text="wait for input inside epochs", value=round(model.wait, 3), unit="ms/step"
            ),
            Observation(source="agent", text=f"one fetch, {kind}", value=round(model.fetch.wall, 3), unit="ms"),
            Observation(source="agent", text="CPU time of one fetch", value=round(model.fetch.cpu, 3), unit="ms"),
            Observation(source="agent", text="the loop without the wait", value=round(model.rest, 3), unit="ms/step"),
            Observation(source="host", text="CPUs the run may use", value=model.cpus, unit="CPUs"),
            Observation(source="host", text="CPUs that others leave free", value=_shown(model.free), unit="CPUs"),
        ],
        fix=Fix(
            text=f"set num_workers={wanted} (now {now})",
            code=f"DataLoader(..., num_workers={wanted}, persistent_workers=True)",
        ),
    )


def _shown(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _traced(evidence: Evidence) -> Finding | None:
    """A trace shows that workers cannot keep up, and not why."""
    epochs = evidence.epochs
    border = (epochs.start_ms + epochs.first_wait_ms) / epochs.steps if epochs and epochs.steps else 0.0
    wait = evidence.wait_ms.get("data", 0.0) - border
    if wait < T.worth * evidence.step_ms:
        return None
    return RULE.finding(
        summary=(
            f"The loop waits for its loader's workers for {wait:.3g} ms of each step. More of them help where CPUs are "
            "free; where they are full the transform is too heavy (T8), or the storage too slow (U8)."
        ),
        gain=gain_between(evidence, 0.9 * evidence.rest_ms("data")),
        evidence=[
            Observation(source="trace", text="wait for the next batch", value=round(wait, 3), unit="ms/step"),
        ],
        fix=Fix(text="raise num_workers where CPUs are free; underfed run -- COMMAND counts them"),
        note="a trace does not show what the workers do: underfed run -- COMMAND tells T4, T8 and U8 apart",
    )


RULE = Rule(
    id="T4",
    name="too-few-loader-workers",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""The work per sample needs more CPU than the run has: more workers cannot help.

What it looks like
    Workers are busy computing all the time, the CPUs are full, and the loop still waits.

Why it costs
    Decoding, augmenting or tokenising a batch takes longer, over all usable CPUs, than training on it.

Fix
    Make the work cheaper or do it once: decode at the size that is needed, cache or precompute what does not
    change, tokenise before training, replace per-row look-ups by arrays, or move the transform to an idle GPU
    (torchvision.transforms.v2 on batches, kornia, DALI).
    plain PyTorch: `x = augment(x.to(device, non_blocking=True))` on the batch, in the loop
    HF Trainer:    `dataset = dataset.map(tokenize, batched=True)` before the Trainer is made
    Lightning:     `batch = augment(batch)` in `on_after_batch_transfer`
    Moving or reordering random transforms changes the samples that training sees; check the result before you trust
    it.

How it is found
    The CPU time of every fetch against its wall time and the CPUs that the run may use. The line is the one in the
    dataset's code where the samples of the workers fall.

When it stays silent
    When fetches mostly wait (U8), when CPUs are free (T4), and when the loop does not wait.

Not to be confused with
    T4 (CPUs are free, workers are not), U8 (fetches wait for storage), X1 (more workers than CPUs).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import Feed, feed, hot_place
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find fetches that compute for longer than the CPUs allow."""
    model = feed(evidence)
    if model is None or model.wait < T.worth * evidence.step_ms or model.waiting:
        return None
    cpus = model.cpus or 1.0
    limited = model.saturated() and (model.loader.workers > 0 or model.over_all > model.rest)
    if not limited:
        return None
    step = evidence.step_ms
    # Halving the work per sample is taken as what a careful rewrite reaches. Behind workers a step lasts as long as its
    # batch, so it halves; without them only the fetch does. The bound is a transform that costs nothing.
    halved = max(model.rest, 0.5 * step if model.loader.workers else step - 0.5 * model.wait)
    free = 0.95 * model.rest * _unshared(model, evidence.on_gpu)
    where = hot_place(evidence)
    return RULE.finding(
        summary=(
            f"Making a batch takes {model.compute:.0f} ms of CPU time and the run has {cpus:g} "
            f"CPU{'s' if cpus != 1 else ''}: the per-sample work must become cheaper, more workers cannot help."
        ),
        gain=gain_between(evidence, free, (halved, 0.95 * step)),
        where=where,
        evidence=[
            Observation(source="agent", text="CPU time of one fetch", value=round(model.compute, 3), unit="ms"),
            Observation(source="agent", text="wall time of one fetch", value=round(model.fetch.wall, 3), unit="ms"),
            Observation(source="agent", text="of which collating", value=round(model.fetch.collate, 3), unit="ms"),
            Observation(source="agent", text="the loop without the wait", value=round(model.rest, 3), unit="ms/step"),
            Observation(source="host", text="CPUs the run may use", value=model.cpus, unit="CPUs"),
        ],
        fix=Fix(text="make the per-sample work cheaper: precompute, cache, vectorise, or move it to the GPU"),
    )


def _unshared(model: Feed, on_gpu: bool) -> float:
    """Part of the loop's time that is left once no worker takes its CPU: on a CPU-only run they share."""
    if on_gpu or not model.loader.workers or model.cpus is None:
        return 1.0
    return min(1.0, model.cpus / (model.loader.workers + 1))


RULE = Rule(
    id="T8",
    name="transform-saturates-cpus",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""Validation takes a large share of the run.

What it looks like
    Every so many steps training pauses while another loader is read under no_grad.

Why it costs
    Nothing is learnt meanwhile. A validation set read with few workers also waits for its own input.

Fix
    Validate less often or on a fixed part of the set, with a larger batch and workers for the validation loader.
    plain PyTorch: `with torch.inference_mode(): validate(model)` every N steps
    HF Trainer:    `TrainingArguments(eval_strategy="steps", eval_steps=2000, per_device_eval_batch_size=64)`
    Lightning:     `Trainer(val_check_interval=2000, limit_val_batches=50)`
    Fewer validations change which checkpoint is picked, so compare runs at equal settings.

How it is found
    Time in and behind another loader than the one that feeds the optimizer steps, and in functions that judge the
    model: by their names (evaluate, validate, estimate_loss), where they switch gradients or training mode off.

When it stays silent
    When validation is a small share of the run.

Not to be confused with
    T5 (starting workers at the epoch's border), X6 (checkpoints).
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule
from underfed.playbook.stalls import stall_finding


def check(evidence: Evidence) -> Finding | None:
    """Find validation that takes a large share of the run."""
    fix = Fix(
        text="validate less often, on fewer batches, with a larger batch and loader workers",
        code="with torch.inference_mode(): ...",
    )
    seen = _without_its_device_time(evidence)
    found = stall_finding(RULE, seen, ("eval",), what="Validation", advice="validate less often or faster", fix=fix)
    if found is not None and seen is not evidence:
        found = _no_surer(found, stall_finding(RULE, evidence, ("eval",), what="Validation", advice="", fix=fix))
    # Without a GPU validation is computing, as training is; with one where the device works meanwhile.
    if found is None or evidence.bound != "compute" or (evidence.on_gpu and seen is evidence):
        return found
    computes: Finding = msgspec.structs.replace(found, bound="compute")
    return computes


def _without_its_device_time(evidence: Evidence) -> Evidence:
    """The same with a device that has less to do once validation is gone: what it did while the host validated."""
    compute = evidence.step.compute_ms
    if not evidence.on_gpu or compute is None:
        return evidence
    cost = sum(spot.ms for spot in evidence.spots if spot.kind == "eval")
    idle = (evidence.wait_ms.get("stall") or 0.0) + (evidence.wait_ms.get("sync") or 0.0)
    worked = min(max(0.0, cost - idle), compute)
    if worked < T.worth * evidence.step_ms:
        return evidence
    return replace(evidence, step=msgspec.structs.replace(evidence.step, compute_ms=compute - worked))


def _no_surer(found: Finding, queued: Finding | None) -> Finding:
    """Widen the range: what the device did meanwhile may also have been training steps launched ahead, which stay."""
    if found.gain is None or found.gain.expected is None or queued is None or queued.gain is None:
        return found
    least = queued.gain.expected[0] if queued.gain.expected else 1.0
    widened = msgspec.structs.replace(found.gain, expected=(min(least, found.gain.expected[0]), found.gain.expected[1]))
    changed: Finding = msgspec.structs.replace(found, gain=widened)
    return changed


RULE = Rule(
    id="X7",
    name="validation-on-training-thread",
    stage="free",
    bound="host",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)

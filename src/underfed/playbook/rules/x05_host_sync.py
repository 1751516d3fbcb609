"""The training thread stops in the step to wait for the device: item(), cpu(), print or synchronize.

What it looks like
    Time in `.item()`, `.cpu()`, `.tolist()`, `bool(tensor)` or `torch.cuda.synchronize()` at the same line every step.

Why it costs
    The launches of the next part are only prepared once the device has run dry, so the device waits for Python after
    each such call. Many of them in a step serialize it. In distributed training they also keep communication from
    overlapping.

Fix
    Keep the value on the device and read it every N steps, clip with torch.nn.utils.clip_grad_norm_ instead of
    reading norms, use torch.where instead of a branch on a tensor.
    plain PyTorch: `total += loss.detach()` each step, `total.item()` every N steps
    HF Trainer:    `TrainingArguments(logging_steps=50, logging_nan_inf_filter=False)`: the filter reads each step's
    loss
    Lightning:     `self.log("loss", loss, on_step=False, on_epoch=True)` for what is not needed each step

How it is found
    Each such call on a device tensor is timed, with its line and how often it runs in a step.

When it stays silent
    On a CPU-only run, and where the device is busy through the wait: one read at the end of a step that the device
    gates costs nothing.

Not to be confused with
    T15 (launching itself is slow). The time in the call is mostly the device's own work; what it costs is the idle gap
    behind it, which is what the gain counts.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find waits for the device inside the step."""
    calls = [sync for sync in evidence.syncs if sync.call != "empty_cache"]
    down = [copy for copy in evidence.copies if copy.direction == "d2h"]
    times = sum(sync.calls for sync in calls) + sum(copy.calls for copy in down)
    if not evidence.on_gpu or times < 0.5:
        return None
    step = evidence.step_ms
    waited = sum(sync.ms for sync in calls) + sum(copy.ms for copy in down)
    idle = max(0.0, step - (evidence.step.device_ms or step))
    if waited < T.worth * step or idle < T.worth * step:
        return None
    places = [(sync.ms, sync.where, sync.call, sync.calls) for sync in calls]
    places += [(copy.ms, copy.where, "copy to the host", copy.calls) for copy in down]
    _, where, call, count = max(places)
    device = evidence.step.device_ms or 0.0
    # Without the waits alone the step loses `waited`; without what those lines do around them (norms, an EMA on the
    # host) it loses all of their time. Behind both lies the refilling of the queue, which only a trial can size.
    # In a trace the same is the time from the first to the last read in a row.
    lines = waited + sum(evidence.work_at(place) for place in {found[1] for found in places if found[1]})
    if evidence.kind == "trace":
        lines = max(lines, evidence.reading_ms or 0.0)
    rest, without = max(device, step - waited), max(device, step - lines)
    best = max(evidence.step.compute_ms or 0.0, without - 0.5 * idle)
    return RULE.finding(
        summary=f"{call} runs {count:.0f} times a step and makes Python wait for the GPU; read it less often.",
        gain=gain_between(evidence, best, (without, rest)),
        where=where,
        evidence=[
            Observation(source="agent", text="waits for the device", value=round(times, 2), unit="calls/step"),
            Observation(source="agent", text="time in them", value=round(waited, 3), unit="ms/step"),
            Observation(source="trace", text="device idle", value=round(idle, 3), unit="ms/step"),
        ],
        fix=Fix(text="keep the value on the device and read it every N steps", code="total += loss.detach()"),
    )


RULE = Rule(
    id="X5",
    name="host-sync-in-step",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

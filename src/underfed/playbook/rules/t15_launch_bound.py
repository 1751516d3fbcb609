"""The GPU waits for the next launch: many short kernels, and a Python thread that cannot issue them fast enough.

What it looks like
    The device is busy for a small part of the step, no line in particular waits, and the training thread is busy in
    forward, backward and optimizer all the time.

Why it costs
    Each operation costs the host several microseconds to launch. Kernels shorter than that leave the device idle in
    between.

Fix
    torch.compile(model, mode="reduce-overhead") fuses kernels and replays launches as CUDA graphs; a larger batch
    (T18) makes each kernel longer; a fused optimizer (X11) removes thousands of launches.
    HF Trainer: torch_compile=True, torch_compile_mode="reduce-overhead"; Lightning: compile the module.
    The first steps compile and are slow; results agree to rounding.

How it is found
    Device time by trace against the untraced step, with the idle time that neither input, stalls, copies nor syncs
    account for.

When it stays silent
    When the device is busy, and when something else than launching holds the host.

Not to be confused with
    A trace taken with a profiler, which slows the host up to twofold and makes a healthy run look launch-bound.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_SHARE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find a device that idles because launches come too slowly."""
    launch, device = evidence.wait_ms.get("launch", 0.0), evidence.step.device_ms
    step = evidence.step_ms
    if not evidence.on_gpu or device is None or launch < _SHARE * step:
        return None
    best = max(0.5 * device, step - launch - (evidence.wait_ms.get("sync") or 0.0) - 0.3 * device)
    likely = max(device, step - launch)
    place = evidence.top("forward", "backward")
    return RULE.finding(
        summary="The Python thread cannot launch kernels fast enough; compile with CUDA graphs, or do more a launch.",
        gain=gain_between(evidence, best, (likely, min(step, likely + 0.3 * launch))),
        where=place.where if place else None,
        evidence=[
            Observation(source="trace", text="device busy", value=round(device, 3), unit="ms/step"),
            Observation(
                source="agent", text="device idle for want of launches", value=round(launch, 3), unit="ms/step"
            ),
        ],
        fix=Fix(text="compile the model with CUDA graphs", code='model = torch.compile(model, mode="reduce-overhead")'),
    )


RULE = Rule(
    id="T15",
    name="launch-bound",
    stage="kernels",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

"""The GPU waits for the next launch: many short kernels, and a Python thread that cannot issue them fast enough.

What it looks like
    The device is busy for a small part of the step, no line in particular waits, and the training thread is busy in
    forward, backward and optimizer all the time.

Why it costs
    Each operation costs the host several microseconds to launch. Kernels shorter than that leave the device idle in
    between.

Fix
    plain PyTorch: `torch.compile(model, mode="reduce-overhead")` fuses kernels and replays launches as CUDA graphs
    HF Trainer:    `TrainingArguments(torch_compile=True, torch_compile_mode="reduce-overhead")`
    Lightning:     `model = torch.compile(model, mode="reduce-overhead")` before `trainer.fit(model)`
    A larger batch (T18) makes each kernel longer; a fused optimizer (X11) removes thousands of launches. The first
    steps compile and are slow; results agree to rounding.

How it is found
    Device time by trace against the untraced step, with the idle time that neither input, stalls, copies nor syncs
    account for. Without a GPU, thousands of operators in a step of which each takes a few microseconds.

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
#: Without a GPU: operators of a step, and its time for each of them in us. Planted loops over tiny operators read 0.6
#: and 1.3 us, loops that compute 14 us and more.
_MANY = 1000
_SHORT_US = 5.0
#: What calling one takes before it computes, with recording it for backward, in us: at least, and at most.
_CALL_US = (0.5, 3.0)
#: Operators without which no step trains, and the most that "up to" says.
_NEEDED = 50
#: Part of the step in forward and backward; an optimizer that loops has a rule of its own.
_MODEL = 0.6
_MOST = 45.0


def check(evidence: Evidence) -> Finding | None:
    """Find a device that idles because launches come too slowly, or a CPU-only step of very many short operators."""
    if not evidence.on_gpu:
        return _operators(evidence)
    launch, device = evidence.wait_ms.get("launch", 0.0), evidence.step.device_ms
    step = evidence.step_ms
    if device is None or launch < _SHARE * step:
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


def _operators(evidence: Evidence) -> Finding | None:
    found = evidence.operators
    if found is None or found.count < _MANY or evidence.bound not in ("compute", "host", "unknown"):
        return None
    # What ran in the counted steps alone, such as a validation, is in their time as well.
    each = 1000 * max(evidence.step_ms / found.count, found.wall_ms / found.count / 3)
    if each > _SHORT_US:
        return None
    model = sum(spot.ms for spot in evidence.spots if spot.kind in ("forward", "backward"))
    if model < _MODEL * evidence.step_ms:
        return None
    place = evidence.top("forward", "backward")
    step = evidence.step_ms
    low, high = (max(0.05 * step, step - model + max(0.0, model - found.count * us / 1000)) for us in _CALL_US)
    most = max(step / _MOST, step * _NEEDED / found.count)
    return RULE.finding(
        summary=f"A step runs {found.count:,.0f} operators, {each:.1f} us for each: calling them takes the time, and"
        " not what they compute.",
        gain=gain_between(evidence, most, (high, low)),
        where=place.where if place else None,
        evidence=[
            Observation(source="agent", text="operators in a step", value=float(round(found.count)), unit="calls"),
            Observation(source="agent", text="the step for each of them", value=round(each, 2), unit="us"),
        ],
        fix=Fix(
            text="do more in each call: the library's own module (nn.LSTM), whole batches, torch.vmap, or compile it",
            code="model = torch.compile(model)",
        ),
        bound="host" if evidence.bound == "unknown" else evidence.bound,
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

"""A debugging aid is on: autograd's anomaly detection, a profiler or a trace function.

What it looks like
    Backward takes several times longer than forward; NaN checks behind every operation.

Why it costs
    Anomaly detection stores a stack for every operation and checks every gradient for NaN, which waits for the device
    each time. Called as a plain statement instead of a `with` block, it stays on for the whole process.

Fix
    plain PyTorch: `torch.autograd.set_detect_anomaly(False)`; no profiler or `sys.settrace` around a long run
    HF Trainer:    `TrainingArguments(debug="")`: underflow_overflow looks into every activation
    Lightning:     `Trainer(detect_anomaly=False, profiler=None)`
    Keep a flag to switch them on when a NaN is hunted.

How it is found
    The mode is asked of torch and of the interpreter while the run goes on; a trace with operators shows a check for
    NaNs in most nodes of the backward pass. On a CPU-only run the cost is inside forward and backward, which count as
    computing.

When it stays silent
    When none of them is on.

Not to be confused with
    X5 (syncs that the program asks for itself).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Gain, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find anomaly detection, a running profiler or a trace function."""
    facts = evidence.torch
    names = [
        name
        for key, name in (
            ("anomaly", "autograd's anomaly detection"),
            ("profiler", "a profiler"),
            ("settrace", "a trace function (sys.settrace)"),
        )
        if facts.get(key)
    ]
    if not names:
        return None
    backward = evidence.regions.get("backward")
    return RULE.finding(
        summary=f"{names[0][0].upper()}{names[0][1:]} is on.",
        gain=_gain(evidence),
        where=facts.get("anomaly_at") if facts.get("anomaly") else None,
        evidence=[
            *(Observation(source="agent", text=f"{name} is on") for name in names),
            Observation(source="agent", text="backward on the training thread", value=backward, unit="ms/step"),
        ],
        bound=evidence.bound_of_device_code(),
        fix=Fix(text=f"switch off {names[0]}", code="torch.autograd.set_detect_anomaly(False)"),
    )


def _gain(evidence: Evidence) -> Gain:
    """Published cases got 1.5 to 3 times faster. Where a trace counts the checks, what they launch goes away: a step
    that is short of launches shrinks at least with their number, and twice as much at best, since each operation also
    records its stack.
    """
    step = evidence.step_ms
    device = evidence.step.device_ms or 0.0 if evidence.on_gpu else 0.0
    # Where a loop has no loader its forward pass stands behind the optimizer step, and the time there counts as well.
    own = sum(evidence.regions.get(name, 0.0) for name in ("pre", "mid", "post", "backward"))
    best = max(0.5 * device, step - 0.9 * own if own else 0.0, 0.05 * step)
    low, high = 1.5, 3.0
    left = _launches_left(evidence)
    if left is not None and evidence.bound == "host":
        low, high = 1 / left, 2 / left
    return gain_between(evidence, best, (max(best, step / high), max(best, step / low)))


#: What one check for NaNs asks of the device: compare, reduce, and copy the answer to the host.
_PER_CHECK = 3


def _launches_left(evidence: Evidence) -> float | None:
    """Share of the device's work items that are no part of a check; None where no checks were traced.

    The answer of a check is one byte, copied to the host.
    """
    trace = evidence.trace
    if trace is None:
        return None
    reads = [row for row in trace.copies if row.direction == "DtoH" and row.bytes is not None]
    checks = sum(row.count for row in reads if row.bytes is not None and row.bytes < 2 * row.count)
    items = sum(row.count for row in trace.kernels) + sum(row.count for row in trace.copies)
    if not checks or items <= _PER_CHECK * checks:
        return None
    return max(0.2, 1 - _PER_CHECK * checks / items)


RULE = Rule(
    id="T12",
    name="debug-mode-left-on",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

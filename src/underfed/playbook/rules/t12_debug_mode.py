"""A debugging aid is on: autograd's anomaly detection, a profiler or a trace function.

What it looks like
    Backward takes several times longer than forward; NaN checks behind every operation.

Why it costs
    Anomaly detection stores a stack for every operation and checks every gradient for NaN, which waits for the device
    each time. Called as a plain statement instead of a `with` block, it stays on for the whole process.

Fix
    torch.autograd.set_detect_anomaly(False); Lightning: Trainer(detect_anomaly=False); take `with profile(...)` and
    sys.settrace out of long runs. Keep a flag to switch them on when a NaN is hunted.

How it is found
    The mode is asked of torch and of the interpreter while the run goes on. On a CPU-only run the cost is inside
    forward and backward, which count as computing.

When it stays silent
    When none of them is on.

Not to be confused with
    X5 (syncs that the program asks for itself).
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
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
    step = evidence.step_ms
    backward = evidence.regions.get("backward", 0.0)
    device = evidence.step.device_ms or 0.0 if evidence.on_gpu else 0.0
    # Published cases got 1.5 to 3 times faster; the bound is a step of which forward and backward leave a tenth. Where
    # a loop has no loader its forward pass stands behind the optimizer step, and the time there counts as well.
    own = sum(evidence.regions.get(name, 0.0) for name in ("pre", "mid", "post"))
    best = max(device, step - 0.9 * (backward + own), 0.05 * step)
    return RULE.finding(
        summary=f"{names[0][0].upper()}{names[0][1:]} is on.",
        gain=gain_between(evidence, best, (max(best, step / 3.0), max(best, step / 1.5))),
        where=facts.get("anomaly_at") if facts.get("anomaly") else None,
        evidence=[Observation(source="agent", text=f"{name} is on") for name in names]
        + [
            Observation(
                source="agent", text="backward on the training thread", value=round(backward, 3), unit="ms/step"
            )
        ],
        bound=evidence.bound_of_device_code(),
        fix=Fix(text=f"switch off {names[0]}", code="torch.autograd.set_detect_anomaly(False)"),
    )


RULE = Rule(
    id="T12",
    name="debug-mode-left-on",
    stage="free",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

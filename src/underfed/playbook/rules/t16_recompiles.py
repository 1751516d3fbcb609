"""torch.compile compiles again in the middle of training, because shapes or guarded values change.

What it looks like
    Steps that stutter, a compiled run slower than eager, and after a few recompiles no gain at all.

Why it costs
    Each new shape or value that violates a guard is compiled anew, for seconds. Past the limit (8 by default) the
    function runs eagerly for good.

Fix
    Pad or bucket to a few shapes; take changing Python values out of guarded attributes. TORCH_LOGS=recompiles
    names the guard.
    plain PyTorch: `torch.compile(model, dynamic=True)`, or `torch._dynamo.mark_dynamic(x, 1)` for what varies
    HF Trainer:    `DataCollatorWithPadding(tokenizer, padding="max_length", max_length=512)` beside
    torch_compile=True
    Lightning:     `model = torch.compile(model, dynamic=True)` before `trainer.fit(model)`

How it is found
    Dynamo's own counters between the first and the last steady step, and stack samples inside the compiler.

When it stays silent
    When nothing is compiled after the warm-up.

Not to be confused with
    Graph breaks, which split the graph once and do not recur.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_without
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find compilation in the steady part of the run."""
    spots = [spot for spot in evidence.spots if spot.kind == "compile"]
    cost = sum(spot.ms for spot in spots)
    count = evidence.recompiles or 0.0
    if count < 1 or cost <= 0 or cost < T.worth * evidence.step_ms:
        return None
    worst = max(spots, key=lambda spot: spot.ms)
    dynamo = evidence.torch.get("dynamo") or {}
    reasons = dynamo.get("reasons") or []
    return RULE.finding(
        summary="torch.compile keeps compiling during training; fix the shapes or compile with dynamic=True.",
        gain=gain_without(evidence, cost),
        where=worst.where,
        evidence=[
            Observation(source="agent", text="time in the compiler, by samples", value=round(cost, 3), unit="ms/step"),
            Observation(source="agent", text="graphs compiled in the steady part", value=count, unit="graphs"),
            *[Observation(source="agent", text=f"graph break: {reason}") for reason in reasons[:2]],
        ],
        fix=Fix(text="pad to few shapes, or compile shape-generic", code="model = torch.compile(model, dynamic=True)"),
    )


RULE = Rule(
    id="T16",
    name="recompiles-in-steady-state",
    stage="kernels",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

"""A gradient scaler is used with bfloat16, which needs none.

Why it costs
    The scaler walks all gradients once more and reads one value from the device in every step.

Fix
    With bfloat16, no GradScaler: loss.backward() and optimizer.step(). On cards with bfloat16, fp16 is seldom
    worth its scaler either (shown as possible).

When it stays silent
    The type or the scaler depends on a setting.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find an enabled GradScaler in a module whose autocast is written as bfloat16."""
    scalers = [
        c
        for c in code.calls
        if code.module.called(c).rpartition(".")[2] == "GradScaler" and "torch" in code.module.called(c)
    ]
    if not scalers:
        return
    types = {
        _type(code, call)
        for call in code.calls
        if code.module.called(call).startswith("torch.") and code.method_name(call) == "autocast"
    }
    for call in scalers:
        if code.keyword(call, "enabled") is not None or isinstance(code.module.parents.get(call), ast.IfExp):
            continue
        if types == {"torch.bfloat16"}:
            yield Hit(
                call, "a GradScaler does nothing for bfloat16 but costs a read from the GPU in every step", "certain"
            )
        elif types and types <= {"torch.float16", "torch.half", None}:
            yield Hit(call, "fp16 needs this scaler; bfloat16 would not, on cards that have it", "possible")


def _type(code: Code, call: ast.Call) -> str | None:
    given = code.keyword(call, "dtype")
    if given is None:
        return None
    return code.module.qualified(given) or "unknown"


RULE = AuditRule(
    id="X55",
    name="gradient-scaler-without-need",
    settle="`underfed run`: waits for the device in the scaler's step",
    doc=__doc__ or "",
    check=check,
)

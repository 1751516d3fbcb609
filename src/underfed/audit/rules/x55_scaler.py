"""A gradient scaler is used with bfloat16 or in 32 bits, which need none, or is made anew again and again.

Why it costs
    The scaler walks all gradients once more and reads one value from the device in every step; a new one starts at
    its largest scale, so its first steps overflow and are thrown away.

Fix
    With bfloat16, no GradScaler: loss.backward() and optimizer.step(). On cards with bfloat16, fp16 is seldom
    worth its scaler either (shown as possible). One scaler for the whole run, made before the loop.

When it stays silent
    The type or the scaler depends on a setting.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.loops import is_epoch_loop
from underfed.audit.rule import AuditRule, Code
from underfed.audit.trainers import trainer_arguments

_LOW = r"autocast|float16|\.half\(|fp16|16-mixed|\bamp\.initialize"


def check(code: Code) -> Iterator[Hit]:
    """Find enabled scalers that nothing needs, and trainers with fp16."""
    for arguments in trainer_arguments(code.module, code.whole.values):
        fp16 = arguments.field("fp16")
        if fp16.known and fp16.value is True:
            yield Hit(arguments.call, "fp16=True needs a scaler; bf16=True would not, where cards have it", "possible")
    for call in code.calls:
        given = code.keyword(call, "precision") if code.method_name(call) in {"Trainer", "Fabric"} else None
        if given is not None and code.value(given).known and code.value(given).value in {16, "16", "16-mixed"}:
            yield Hit(call, "16-mixed needs a scaler; bf16-mixed would not, on cards that have it", "possible")
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
        again = _again(code, call)
        if again is not None:
            text = (
                "a GradScaler that is made anew starts at its largest scale: its first steps overflow and are skipped"
            )
            yield Hit(call, text, again)
        elif types == {"torch.bfloat16"}:
            yield Hit(
                call, "a GradScaler does nothing for bfloat16 but costs a read from the GPU in every step", "certain"
            )
        elif not code.project.mentions(_LOW):
            yield Hit(call, "a GradScaler without autocast or fp16 costs a read from the GPU in every step", "likely")
        elif types and types <= {"torch.float16", "torch.half", None}:
            yield Hit(call, "fp16 needs this scaler; bfloat16 would not, on cards that have it", "possible")


def _again(code: Code, call: ast.Call) -> Sure | None:
    level = code.whole.heat.level(code.module, call)
    if level is not None:
        return level
    return "likely" if any(is_epoch_loop(one) for one in code.module.up(call)) else None


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

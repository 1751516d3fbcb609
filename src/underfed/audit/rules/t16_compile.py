"""torch.compile is called where it runs again and again: in the training loop or in forward.

Why it costs
    Each call makes a new compiled function, whose first call compiles again: seconds to minutes of a busy CPU and
    an idle device.

Fix
    Compile once, before the loop.

When it stays silent
    A loop over the layers of a model, which compiles each of them once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.loops import is_epoch_loop
from underfed.audit.module import FunctionNode
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find torch.compile in hot places."""
    for call in code.calls:
        if code.module.called(call) != "torch.compile":
            continue
        if any(isinstance(one, FunctionNode) and call in one.decorator_list for one in code.module.up(call)[:1]):
            continue
        level = code.whole.heat.level(code.module, call)
        if level is not None:
            yield Hit(call, "torch.compile in the training loop compiles again in every step", level)
            continue
        function = code.module.function_of(call)
        if function is not None and function.name == "forward" and function.cls is not None:
            kept = any(isinstance(one, ast.If) for one in code.module.up(call))
            yield Hit(call, "torch.compile in forward compiles again in every call", "possible" if kept else "certain")
        elif any(is_epoch_loop(one) for one in code.module.up(call)):
            guarded = any(isinstance(one, ast.If) for one in code.module.up(call))
            yield Hit(
                call,
                "torch.compile in the epoch loop compiles again in every epoch",
                "possible" if guarded else "likely",
            )


RULE = AuditRule(
    id="T16",
    name="recompiles-in-steady-state",
    settle="TORCH_LOGS=recompiles, or `underfed run`: compilations after the warm-up",
    doc=__doc__ or "",
    check=check,
)

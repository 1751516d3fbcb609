"""Gradients are filled with zeros instead of being dropped.

Why it costs
    zero_grad(set_to_none=False) writes every gradient once more, and the next backward pass reads and adds
    instead of writing.

Fix
    optimizer.zero_grad(): None is the default since torch 2.0. An optimizer skips parameters without a gradient,
    and code between that reads .grad sees None, so no safe fix exists.

When it stays silent
    Outside the step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find zero_grad(set_to_none=False) in the step."""
    for call, _, sure in code.hot_calls():
        if code.method_name(call) != "zero_grad":
            continue
        first = call.args[0] if call.args else code.keyword(call, "set_to_none")
        if isinstance(first, ast.Constant) and first.value is False:
            edit = set_keyword(code.module, call, "set_to_none", "True") if not call.args else None
            yield Hit(
                call,
                "set_to_none=False fills gradients with zeros in every step",
                sure,
                Fix("drop them", False, (edit,)) if edit else None,
            )


RULE = AuditRule(
    id="X49",
    name="gradients-filled-with-zeros",
    settle="`underfed read` on a trace: fill kernels between steps",
    doc=__doc__ or "",
    check=check,
)

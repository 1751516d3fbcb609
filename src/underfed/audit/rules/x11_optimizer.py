"""The optimizer updates parameters one by one.

Why it costs
    Several small launches for each parameter instead of a few for all of them.

Fix
    Leave foreach to torch (its default), or fused=True on a GPU; replace a loop over parameters by an optimizer
    or by torch._foreach_ functions. The order of operations can change, so no safe fix exists.

When it stays silent
    On projects that never speak of a GPU.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace
from underfed.audit.finding import Fix, Hit, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded


def check(code: Code) -> Iterator[Hit]:
    """Find foreach=False, and hand-written updates in the step."""
    if not code.project.uses_gpu:
        return
    for call in code.calls:
        given = code.keyword(call, "foreach")
        name = code.module.called(call)
        if isinstance(given, ast.Constant) and given.value is False and not code.is_true(call, "fused"):
            sure = guarded(code, call)
            if sure is not None and name.startswith(("torch.optim.", "torch.nn.utils.clip_grad_norm_")):
                fix = Fix("let torch choose", False, (replace(code.module, given, "None"),))
                yield Hit(
                    call, f"{name.rpartition('.')[2]} with foreach=False handles parameters one by one", sure, fix
                )
    for hot in code.hot:
        if not isinstance(hot.node, ast.For):
            continue
        over = ast.unparse(hot.node.iter)
        if "parameters()" not in over and "param_groups" not in over:
            continue
        for node in ast.walk(hot.node):
            update = _updates(node)
            if update:
                text = f"a Python loop over parameters {update}: several launches for each of them"
                yield Hit(hot.node.iter, text, least(hot.sure, "likely"))
                break


def _updates(node: ast.AST) -> str | None:
    if (
        isinstance(node, ast.AugAssign)
        and isinstance(node.target, ast.Attribute)
        and node.target.attr in {"data", "grad"}
    ):
        return "updates weights" if node.target.attr == "data" else "changes gradients"
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    base = ast.unparse(node.func.value)
    if node.func.attr in {"mul_", "add_", "sub_", "lerp_", "copy_", "clamp_", "addcdiv_"}:
        if base.endswith(".grad") or ".grad." in base:
            return "changes gradients"
        if (
            "grad" in ast.unparse(node)
            or base.endswith((".data", ".data.mul_"))
            or "lerp" in node.func.attr
            or ".mul_(" in base
        ):
            return "updates weights"
    return None


RULE = AuditRule(
    id="X11",
    name="single-tensor-optimizer",
    settle="`underfed run`: time in the optimizer and launches a step",
    doc=__doc__ or "",
    check=check,
)

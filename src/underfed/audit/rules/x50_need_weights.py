"""nn.MultiheadAttention computes its weights, and nothing uses them.

Why it costs
    need_weights=True is the default and rules out the fused kernels: the full matrix of weights is stored and
    averaged.

Fix
    need_weights=False. Sums run in another order, so no safe fix exists.

When it stays silent
    The weights are used, or the argument is given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.scopes import own_values


def check(code: Code) -> Iterator[Hit]:
    """Find calls of attention layers whose second result is thrown away."""
    for cls in code.module.class_of.values():
        layers = {
            f"self.{name}"
            for name, values in own_values(cls).items()
            if any(
                code.module.called(v)
                in {"torch.nn.MultiheadAttention", "torch.nn.modules.activation.MultiheadAttention"}
                for v in values
            )
        }
        if not layers:
            continue
        for node in ast.walk(cls.node):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in layers:
                continue
            given = code.keyword(node, "need_weights")
            wanted = given is None or (isinstance(given, ast.Constant) and given.value is True)
            if not wanted or len(node.args) > 4 or any(k.arg is None for k in node.keywords):
                continue
            if _thrown_away(code, node):
                edit = set_keyword(code.module, node, "need_weights", "False")
                fix = Fix("do not ask for the weights", False, (edit,)) if edit else None
                yield Hit(
                    node,
                    f"{code.short(node.func)} computes attention weights that nothing uses: need_weights is not False",
                    "certain",
                    fix,
                )


def _thrown_away(code: Code, node: ast.Call) -> bool:
    around = code.module.parents.get(node)
    if isinstance(around, ast.Subscript):
        return isinstance(around.slice, ast.Constant) and around.slice.value == 0
    if isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Tuple) and len(around.targets[0].elts) == 2:
        second = around.targets[0].elts[1]
        if not isinstance(second, ast.Name):
            return False
        if second.id.startswith("_"):
            return True
        function = code.module.function_of(node)
        top = function.node if function else code.module.tree
        return not any(
            isinstance(n, ast.Name) and n.id == second.id and isinstance(n.ctx, ast.Load) for n in ast.walk(top)
        )
    return False


RULE = AuditRule(
    id="X50",
    name="attention-weights-not-used",
    settle="`underfed read` on a trace: softmax and batched products where one fused kernel would be",
    doc=__doc__ or "",
    check=check,
)

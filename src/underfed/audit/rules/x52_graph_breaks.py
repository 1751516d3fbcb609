"""forward of a compiled model does what torch.compile cannot take into its graph: item(), print, numpy, `if tensor`.

Why it costs
    The graph breaks there: two smaller graphs with Python between them, for every such place and every layer.

Fix
    Keep values on the device (torch.where, masks, torch.cond), and print and convert outside of forward. numpy is
    traced by torch 2.1 and later, but runs on the host (shown as possible).

When it stays silent
    Nothing in the project is compiled, or the place is guarded by torch.compiler.is_compiling() or self.training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure, least
from underfed.audit.guards import guard
from underfed.audit.rule import AuditRule, Code

_REDUCTIONS = frozenset({"any", "all", "max", "min", "sum", "mean", "norm", "isnan", "allclose", "equal"})


def check(code: Code) -> Iterator[Hit]:
    """Find graph breaks in forward; without compilation the reads are host syncs all the same."""
    compiled = code.project.mentions(
        r"torch\.compile\(|\.compile\(\s*(mode|fullgraph|dynamic|backend|\))|@torch\.compile"
    )
    if not compiled or "def forward" not in code.module.source:
        return
    # Which models are compiled is followed no further than to their module.
    sure: Sure = "likely" if "compile" in code.module.source else "possible"
    for cls in code.module.class_of.values():
        forward = cls.methods.get("forward")
        if forward is None or not code.project.is_model(cls):
            continue
        for node in ast.walk(forward.node):
            found = _breaks(code, node)
            if found is not None and not _guarded(code, node):
                what, level = found
                yield Hit(node, f"{what} breaks the compiled graph of {cls.node.name}", least(sure, level))


def _breaks(code: Code, node: ast.AST) -> tuple[str, Sure] | None:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        test = next((part for part in ast.walk(node.test) if _decides(code, part)), None)
        return (f"`if {code.short(test)}`", "likely") if test is not None else None
    if not isinstance(node, ast.Call):
        return None
    name = code.module.called(node)
    if name == "print":
        return "print()", "likely"
    if isinstance(node.func, ast.Attribute) and not node.args and node.func.attr in {"item", "tolist", "numpy"}:
        if node.func.attr == "numpy":  # torch 2.1 and later trace numpy, on the host
            return code.short(node), "possible"
        if code.homes(node).of(node.func.value) == "host":
            return None
        if code.project.mentions(r"capture_scalar_outputs\s*=\s*True"):
            return None
        return code.short(node), "likely"
    if name.startswith("numpy.random.") or name in {"random.random", "random.randint", "random.choice"}:
        return f"{name}()", "possible"
    return None


def _decides(code: Code, node: ast.AST) -> bool:
    """Return whether a test asks for the value of a tensor: `mask.any()`, `(x < 0).sum() > 0`, torch.isnan(x).any()."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in _REDUCTIONS:
        return False
    name = code.module.called(node)
    if name.startswith("torch."):
        return bool(node.args)
    receiver = node.func.value
    root = receiver
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    if isinstance(root, ast.Name) and (root.id in code.module.imports or root.id == "self"):
        return False
    return code.homes(node).of(receiver) != "host" and not node.args


def _guarded(code: Code, node: ast.AST) -> bool:
    for around in code.module.up(node):
        if isinstance(around, ast.If):
            text = ast.unparse(around.test)
            if "compiling" in text or "training" in text or guard(around.test) == "rare":
                return True
    return False


RULE = AuditRule(
    id="X52",
    name="graph-break-in-forward",
    settle="TORCH_LOGS=graph_breaks",
    doc=__doc__ or "",
    check=check,
)

"""forward of a compiled model does what torch.compile cannot take into its graph: item(), print, numpy, `if tensor`.

Why it costs
    The graph breaks there: two smaller graphs with Python between them, for every such place and every layer.

Fix
    Keep values on the device (torch.where, masks), and print and convert outside of forward.

When it stays silent
    Nothing in the project is compiled, or the place is guarded by torch.compiler.is_compiling() or self.training.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.guards import guard
from underfed.audit.rule import AuditRule, Code


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
                yield Hit(node, f"{found} breaks the compiled graph of {cls.node.name}", sure)


def _breaks(code: Code, node: ast.AST) -> str | None:
    if not isinstance(node, ast.Call):
        return None
    name = code.module.called(node)
    if name == "print":
        return "print()"
    if isinstance(node.func, ast.Attribute) and not node.args and node.func.attr in {"item", "tolist", "numpy"}:
        if code.homes(node).of(node.func.value) == "host":
            return None
        return f"{code.short(node)}"
    return None


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

"""The loop keeps tensors that hold more than their numbers: batches of workers, or losses with their graph.

Why it costs
    A batch from a worker occupies shared memory and file descriptors as long as anything refers to it, until the
    limit is reached; a loss that was not detached keeps its graph.

Fix
    Keep numbers or detached copies: losses.append(loss.detach()), kept.append(batch.clone()).

When it stays silent
    What is kept is detached, copied or read, or is used for a backward pass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace
from underfed.audit.finding import Fix, Hit, least
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find batches and undetached losses that the step keeps."""
    for hot in code.hot:
        node = hot.node
        if isinstance(node, ast.Call) and code.method_name(node) == "append" and len(node.args) == 1:
            kept = node.args[0]
            homes = code.homes(node)
            if not isinstance(kept, ast.Name) or not isinstance(node.func, ast.Attribute):
                continue
            into = ast.unparse(node.func.value)
            if kept.id in homes.losses and not _used(code, node, into):
                fix = Fix("keep the number, not the graph", False, (replace(code.module, kept, f"{kept.id}.detach()"),))
                yield Hit(
                    node, f"{into} keeps {kept.id} with its graph: it is not detached", least(hot.sure, "likely"), fix
                )
            elif kept.id in homes.batches and homes.names.get(kept.id) == "batch":
                text = f"{into} keeps batches of the loader, each with shared memory and a file descriptor"
                yield Hit(node, text, least(hot.sure, "likely"))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and isinstance(node.value, ast.Name):
            homes = code.homes(node)
            name = ast.unparse(node.target)
            if node.value.id in homes.losses and name not in homes.losses and not _used(code, node, name):
                fix = Fix(
                    "add the number, not the graph",
                    False,
                    (replace(code.module, node.value, f"{node.value.id}.detach()"),),
                )
                yield Hit(
                    node,
                    f"{name} keeps the graph of every {node.value.id}: it is not detached",
                    least(hot.sure, "likely"),
                    fix,
                )


def _used(code: Code, node: ast.AST, name: str) -> bool:
    """Return whether a collection is added up again for a backward pass, or cleared."""
    function = code.module.function_of(node)
    top = function.node if function else code.module.tree
    for call in ast.walk(top):
        if isinstance(call, ast.Call):
            func = ast.unparse(call.func)
            if func.endswith(".backward") and name in func:
                return True
            if func in {"sum", "torch.stack", "torch.cat", f"{name}.clear", f"{name}.backward"} and name in ast.unparse(
                call
            ):
                return True
    return False


RULE = AuditRule(
    id="X44",
    name="tensors-kept-by-the-loop",
    settle="`underfed run`: memory that grows from step to step",
    doc=__doc__ or "",
    check=check,
)

"""The training loop reads a value from the device in every step: item(), cpu(), float(), print, `if tensor`.

Why it costs
    Python waits until the device has done everything queued before, and only then prepares the next launches;
    after each read the device runs dry until new work arrives.

Fix
    Keep the value on the device (total += loss.detach()) and read it every N steps, or at the end of the epoch.

When it stays silent
    In evaluation code, behind `if step % n`, on numbers, numpy arrays and batches that were never moved, and in
    projects that never speak of a GPU; barely possible in a script that does not. One read at the end of a step that
    the device gates costs nothing: a run shows that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from underfed.audit.edits import drop_statement
from underfed.audit.finding import Fix, Hit, Sure, least
from underfed.audit.module import LOOPS
from underfed.audit.rule import AuditRule, Code

_READS = frozenset({"item", "cpu", "tolist"})
_CLOCKS = ("time.", "torch.cuda.Event", "timeit.")


def check(code: Code) -> Iterator[Hit]:
    """Find reads of device values in the step."""
    if not code.project.uses_gpu:
        return
    speaks = code.project.speaks_of_gpu(code.module)
    for hot in code.hot:
        node = hot.node
        if isinstance(node, ast.Call):
            hit = _call(code, node, hot.sure)
        elif isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp):
            hit = _test(code, node.test, hot.sure)
        elif isinstance(node, ast.FormattedValue):
            hit = _shown(code, node.value, hot.sure)
        else:
            hit = None
        if hit is not None:
            yield hit if speaks else replace(hit, sure="possible")


def _call(code: Code, node: ast.Call, sure: Sure) -> Hit | None:
    name = code.module.called(node)
    method = code.method_name(node)
    if isinstance(node.func, ast.Attribute) and method in _READS and not node.args:
        home = code.homes(node).of(node.func.value)
        if home in {"host", "batch"} or _already_read(node.func.value):
            return None
        if home == "unknown":
            sure = least(sure, "possible" if method == "tolist" else "likely")
        if method == "cpu" and _is_model(node.func.value):
            return None
        return Hit(node, f"{code.short(node)} makes Python wait for the GPU in every step", sure)
    if name in {"float", "int", "bool", "math.isnan", "math.isfinite", "math.isinf"} and len(node.args) == 1:
        if _on_device(code, node.args[0]):
            return Hit(node, f"{code.short(node)} makes Python wait for the GPU in every step", least(sure, "likely"))
    if name == "print":
        shown = next(
            (arg for arg in node.args if _on_device(code, arg) and isinstance(arg, ast.Name | ast.Attribute)), None
        )
        if shown is not None:
            return Hit(node, f"printing {code.short(shown)} makes Python wait for the GPU in every step", sure)
    if name == "torch.cuda.synchronize" or (method == "synchronize" and name.startswith("torch.")):
        timed = _is_timed(code, node)
        edit = drop_statement(code.module, node) if not timed else None
        fix = Fix("do not wait for the device", True, (edit,)) if edit and _alone(code, node) else None
        return Hit(node, "synchronize() stops Python in every step", "possible" if timed else sure, fix)
    if method == "get_scale" and "scaler" in ast.unparse(node.func).lower():
        return Hit(node, "get_scale() reads the scale from the GPU in every step", least(sure, "likely"))
    if name == "torch.nonzero" or (method == "nonzero" and not node.args):
        if _on_device(code, node.args[0] if node.args else node.func):
            return Hit(node, "nonzero() has to wait for the GPU to learn its size", least(sure, "likely"))
    return None


def _test(code: Code, test: ast.expr, sure: Sure) -> Hit | None:
    parts = [test]
    while parts:
        part = parts.pop()
        if isinstance(part, ast.BoolOp):
            parts.extend(part.values)
        elif isinstance(part, ast.UnaryOp):
            parts.append(part.operand)
        elif isinstance(part, ast.Compare):
            if all(isinstance(op, ast.Gt | ast.Lt | ast.GtE | ast.LtE | ast.Eq) for op in part.ops):
                sides = [part.left, *part.comparators]
                if any(_is_loss(code, side) for side in sides):
                    return Hit(
                        part, f"`{code.short(part)}` makes Python wait for the GPU in every step", least(sure, "likely")
                    )
        elif isinstance(part, ast.Call) and code.module.called(part) in {
            "torch.isnan",
            "torch.isinf",
            "torch.isfinite",
        }:
            if part.args and _on_device(code, part.args[0]):
                return Hit(part, f"`if {code.short(part)}` makes Python wait for the GPU in every step", sure)
        elif (
            isinstance(part, ast.Call)
            and code.method_name(part) in {"any", "all"}
            and isinstance(part.func, ast.Attribute)
        ):
            if _on_device(code, part.func.value):
                return Hit(
                    part, f"`if {code.short(part)}` makes Python wait for the GPU in every step", least(sure, "likely")
                )
    return None


def _shown(code: Code, node: ast.expr, sure: Sure) -> Hit | None:
    if _is_loss(code, node):
        return Hit(node, f"formatting {code.short(node)} makes Python wait for the GPU in every step", sure)
    return None


def _is_loss(code: Code, node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in code.homes(node).losses


def _on_device(code: Code, node: ast.AST) -> bool:
    return not _already_read(node) and code.homes(node).of(node) == "device"


def _already_read(node: ast.AST) -> bool:
    """Return whether an inner call has read the value, so that this one does not wait."""
    return any(
        isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in {*_READS, "numpy"}
        for inner in ast.walk(node)
    )


def _is_model(node: ast.AST) -> bool:
    return ast.unparse(node).rpartition(".")[2] in {"model", "module", "net", "network"}


def _alone(code: Code, node: ast.Call) -> bool:
    return isinstance(code.module.parents.get(node), ast.Expr)


def _is_timed(code: Code, node: ast.AST) -> bool:
    function = code.module.function_of(node)
    top: ast.AST | None = function.node if function else None
    if top is None:
        top = next((around for around in reversed(code.module.up(node)) if isinstance(around, LOOPS)), code.module.tree)
    return any(
        code.module.called(call).startswith(_CLOCKS) or "timer" in ast.unparse(call.func).lower()
        for call in ast.walk(top)
        if isinstance(call, ast.Call)
    )


RULE = AuditRule(
    id="X5",
    name="host-sync-in-step",
    settle="`underfed run`: time in the call, and how long the device idles behind it",
    doc=__doc__ or "",
    check=check,
)

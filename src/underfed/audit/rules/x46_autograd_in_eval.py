"""Evaluation, or a teacher whose outputs are only targets, records a graph that nothing uses.

Why it costs
    Every operation keeps its inputs for a backward pass that never comes: more memory, so smaller batches, and
    extra work.

Fix
    with torch.inference_mode(): around the loop, or @torch.no_grad() on the function.

When it stays silent
    A caller, a decorator or a block switches gradients off, or the function uses gradients. A teacher is only
    possible where anything in the project switches requires_grad: it may be frozen. So is evaluation where the
    project differentiates by itself: forces.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Edit, Fix, Hit, Sure, least
from underfed.audit.loops import evaluates
from underfed.audit.module import LOOPS, Function
from underfed.audit.rule import AuditRule, Code

_OFF = re.compile(
    r"no_grad|inference_mode|set_grad_enabled|enable_grad|autograd\.grad|\.backward\(|manual_backward|requires_grad_"
)

_TEACHER = re.compile(
    r"(^|[._])(teacher\w*|ema_model|target_net\w*|momentum_encoder|ref_model|reference_model|frozen\w*)$"
)

#: More callers than this are too many to follow.
_MANY = 100


def check(code: Code) -> Iterator[Hit]:
    """Find evaluation, and teachers in the step, with gradients on."""
    yield from _teachers(code)
    if ".eval()" not in code.module.source or code.project.mentions(
        r"torch\.set_grad_enabled\(False\)|_C\._set_grad_enabled"
    ):
        return
    for function in code.module.all_functions.values():
        called = _puts_to_eval(function)
        if called is None or function in code.whole.training.loop_functions | code.whole.training.step_functions:
            continue
        marks = " ".join(ast.unparse(mark) for mark in function.node.decorator_list)
        if _OFF.search(code.module.text(function.node)) or _OFF.search(marks):
            continue
        uses = [
            node for node in ast.walk(function.node) if isinstance(node, ast.Call) and ast.unparse(node.func) == called
        ]
        looped = [node for node in uses if any(isinstance(one, LOOPS) for one in code.module.up(node))]
        if not looped or _switched_off(code, function):
            continue
        sure: Sure = "certain" if evaluates(function.name) else "likely"
        if code.project.mentions(r"lightning|Accelerator|Trainer\(|autograd\.grad\(|torch\.func|create_graph"):
            sure = "possible"  # gradients may be switched off outside, or be what the model computes: forces
        yield Hit(
            looped[0],
            f"{function.name}() evaluates with gradients on: no no_grad() or inference_mode() around it",
            sure,
            _fix(code, function),
        )


def _teachers(code: Code) -> Iterator[Hit]:
    """Find models in the step whose outputs are targets, run with gradients on."""
    sure: Sure = "possible" if code.project.mentions(r"requires_grad_?\b") else "likely"
    for call, _, level in code.hot_calls():
        if not _TEACHER.search(ast.unparse(call.func)) or not (call.args or call.keywords):
            continue
        off = [item.context_expr for one in code.module.up(call) if isinstance(one, ast.With) for item in one.items]
        function = code.module.function_of(call)
        off += function.node.decorator_list if function is not None else []
        if any(_OFF.search(ast.unparse(part)) for part in off):
            continue
        text = f"{code.short(call.func)}() records a graph that nothing uses: no no_grad() around it"
        yield Hit(call, text, least(sure, level))


def _puts_to_eval(function: Function) -> str | None:
    for node in ast.walk(function.node):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "eval"
            and not node.args
        ):
            return ast.unparse(node.func.value)
    return None


def _switched_off(code: Code, function: Function) -> bool:
    """Return whether any way into a function that was found switches gradients off; with very many ways, say so too."""
    seen, queue = {function}, [function]
    while queue:
        inner = queue.pop()
        if inner.outer is not None and _OFF.search(inner.module.text(inner.outer.node)):
            return True
        calls = code.project.calls_by_name.get(inner.name, [])
        if len(calls) > _MANY or len(seen) > _MANY:
            return True
        for module, call in calls:
            found, _ = code.project.resolve(module, call)
            if found and inner not in found:
                continue
            around = module.function_of(call)
            blocks = [one for one in module.up(call) if isinstance(one, ast.With)]
            marks = around.node.decorator_list if around else []
            texts = [ast.unparse(item.context_expr) for block in blocks for item in block.items]
            if any(_OFF.search(text) for text in [*texts, *map(ast.unparse, marks)]):
                return True
            if around is not None and around not in seen:
                seen.add(around)
                queue.append(around)
    return False


def _fix(code: Code, function: Function) -> Fix | None:
    if code.module.imports.get("torch") != "torch" or any(
        isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(function.node)
    ):
        return None
    first = min([function.node.lineno, *(mark.lineno for mark in function.node.decorator_list)])
    row = code.module.line(first)
    indent = row[: len(row) - len(row.lstrip())]
    at = code.module.offset(first, 0)
    end = "\r\n" if "\r\n" in code.module.source else "\n"
    return Fix("switch gradients off", False, (Edit(at, at, f"{indent}@torch.no_grad(){end}"),))


RULE = AuditRule(
    id="X46",
    name="autograd-in-evaluation",
    settle="peak memory and time of an evaluation, with and without",
    doc=__doc__ or "",
    check=check,
)

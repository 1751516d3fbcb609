"""Gradients are accumulated over several passes, and every pass sends them to all processes.

Why it costs
    DistributedDataParallel averages gradients in every backward pass; with N passes a step, N - 1 of them for
    nothing.

Fix
    with model.no_sync(): around all passes but the last; Accelerate: with accelerator.accumulate(model). Sums run
    in another order, so no safe fix exists.

When it stays silent
    Something in the project uses no_sync or its equivalents (with forward and backward in it), or there is no
    DistributedDataParallel.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.guards import guard
from underfed.audit.loops import is_step_call
from underfed.audit.rule import AuditRule, Code

_WRAPPED = r"DistributedDataParallel\(|\bDDP\(|FullyShardedDataParallel\(|\bFSDP\("
_SPARED = (
    r"no_sync|require_backward_grad_sync|set_requires_gradient_sync|\.accumulate\("
    r"|gradient_accumulation_steps=.*Accelerator|skip_gradient_sync"
)

#: Calls beside a backward pass that are no forward pass.
_NO_FORWARD = frozenset({"scale", "mean", "sum", "float", "div", "detach"})


def check(code: Code) -> Iterator[Hit]:
    """Find optimizer steps that run every n passes, with backward in all of them."""
    if not code.project.mentions(_WRAPPED):
        return
    yield from _misplaced(code)
    if code.project.mentions(_SPARED):
        return
    for one in code.whole.training.loops:
        if one.module is not code.module:
            continue
        passes, steps, inner = [], [], []
        for node in ast.walk(one.loop):
            if not isinstance(node, ast.Call) or not is_step_call(code.module, node):
                continue
            if code.method_name(node) == "step":
                steps.append(node)
            else:
                passes.append(node)
        steps_every = [
            call
            for call in steps
            if any(
                isinstance(a, ast.If) and guard(a.test) == "rare" and "%" in ast.unparse(a.test)
                for a in code.module.up(call)
            )
        ]
        inner = [
            call
            for call in passes
            if not any(isinstance(a, ast.If) and "%" in ast.unparse(a.test) for a in code.module.up(call))
        ]
        if steps_every and len(steps_every) == len(steps) and inner:
            yield Hit(
                inner[0],
                "every pass of an accumulated step sends its gradients: backward() is not in no_sync()",
                "likely",
            )
        elif (
            not steps
            and passes
            and re.search(r"accum|micro", ast.unparse(one.loop.iter) if isinstance(one.loop, ast.For) else "")
        ):
            yield Hit(passes[0], "every micro-batch sends its gradients: backward() is not in no_sync()", "likely")


def _misplaced(code: Code) -> Iterator[Hit]:
    """Find no_sync() around a backward pass whose forward pass is outside: the gradients are sent all the same."""
    for block in code.module.of(ast.With):
        owners = [
            item.context_expr.func.value
            for item in block.items
            if isinstance(item.context_expr, ast.Call)
            and isinstance(item.context_expr.func, ast.Attribute)
            and item.context_expr.func.attr == "no_sync"
        ]
        inner = [node for line in block.body for node in ast.walk(line) if isinstance(node, ast.Call)]
        if len(owners) != 1 or not inner:
            continue
        passes = [call for call in inner if is_step_call(code.module, call) and code.method_name(call) != "step"]
        others = [call for call in inner if call not in passes and code.method_name(call) not in _NO_FORWARD]
        if passes and not others:
            model = ast.unparse(owners[0])
            text = f"no_sync() holds backward() only: {model}'s forward has to be inside too, or gradients are sent"
            yield Hit(block.items[0].context_expr, text, "likely")


RULE = AuditRule(
    id="X58",
    name="accumulation-without-no-sync",
    settle="`underfed read` on a trace: collectives in each pass of a step",
    doc=__doc__ or "",
    check=check,
)

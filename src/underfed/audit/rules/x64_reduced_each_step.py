"""A metric is averaged over all processes in every step.

Why it costs
    sync_dist=True with a value for the step (Lightning's default in training_step) sends an all-reduce and waits for it
    each time, between the model's own; so does an explicit all_reduce or gather of a loss only to show it.

Fix
    self.log(..., on_step=False, on_epoch=True, sync_dist=True): once an epoch; or reduce every N steps.

When it stays silent
    on_step=False, behind a condition that counts steps, and outside the step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, least
from underfed.audit.project import LIGHTNING
from underfed.audit.rule import AuditRule, Code

_REDUCES = frozenset({"torch.distributed.all_reduce", "torch.distributed.all_gather", "torch.distributed.reduce"})
_GATHERS = frozenset({"gather", "gather_for_metrics", "reduce", "all_gather", "all_reduce"})
_OWNERS = ("accelerator", "fabric", "self")


def check(code: Code) -> Iterator[Hit]:
    """Find reductions of what is only shown."""
    for call, name, sure in code.hot_calls():
        method = code.method_name(call)
        if method in {"log", "log_dict"} and _in_lightning(code, call):
            if code.is_true(call, "sync_dist") and not code.is_false(call, "on_step"):
                text = f"{method}(sync_dist=True) sends an all-reduce in every step"
                yield Hit(call, text, least(sure, "likely"))
        elif name in _REDUCES or (method in _GATHERS and ast.unparse(call.func).startswith(_OWNERS)):
            if call.args and _is_loss(code, call.args[0]):
                text = f"{code.short(call)} sends a collective in every step, only to show the loss"
                yield Hit(call, text, least(sure, "likely"))


def _in_lightning(code: Code, call: ast.Call) -> bool:
    function = code.module.function_of(call)
    while function is not None and function.cls is None:
        function = function.outer
    cls = function.cls if function is not None else None
    return cls is not None and isinstance(call.func, ast.Attribute) and code.project.is_kind(cls, LIGHTNING)


def _is_loss(code: Code, node: ast.AST) -> bool:
    """Return whether a value is a loss, alone or detached: its gradient is not what is reduced."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value  # loss.detach().repeat(n)
    return isinstance(node, ast.Name) and node.id in code.homes(node).losses


RULE = AuditRule(
    id="X64",
    name="metric-reduced-each-step",
    settle="`underfed read` on a trace: small collectives in each step",
    doc=__doc__ or "",
    check=check,
)

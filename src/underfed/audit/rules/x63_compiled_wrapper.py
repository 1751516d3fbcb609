"""torch.compile is called on a model that DistributedDataParallel wraps already.

Why it costs
    Dynamo then has to trace the wrapper as well; torch's own guide says that it does not handle such wrappers well and
    advises to compile the model inside. Where the wrapper's hooks end up in the graph, gradients are sent late.

Fix
    model = DistributedDataParallel(torch.compile(model), ...): compile first, wrap then. Older advice (of torch 2.0)
    was the other way round, so this is never more than possible.

When it stays silent
    The model is compiled before it is wrapped, or what is compiled cannot be followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.scopes import bindings

_WRAPPERS = ("DistributedDataParallel", "DDP")


def check(code: Code) -> Iterator[Hit]:
    """Find compilations of wrapped models."""
    for call in code.calls:
        if code.module.called(call) != "torch.compile" or not call.args:
            continue
        wrapped = _origin(code, call, call.args[0])
        if isinstance(wrapped, ast.Call) and code.method_name(wrapped) in _WRAPPERS:
            yield Hit(call, "torch.compile traces the DistributedDataParallel wrapper too: compile first", "possible")


def _origin(code: Code, call: ast.Call, node: ast.expr) -> ast.expr | None:
    """Return what a name was last assigned above the call."""
    if not isinstance(node, ast.Name):
        return node
    stored = bindings(code.module, code.module.function_of(call)).get(node.id, [])
    above = [value for value in stored if value is not None and value.lineno < call.lineno]
    return above[-1] if above and None not in stored else None


RULE = AuditRule(
    id="X63",
    name="compiled-around-its-wrapper",
    settle="two short runs, compiled inside and outside",
    doc=__doc__ or "",
    check=check,
)

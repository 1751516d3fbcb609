"""A tensor is built on the CPU and then moved to the device, in every step.

Why it costs
    Allocation, filling and a blocking copy on the training thread take the place of one kernel launch.

Fix
    Build it there: torch.zeros(n, device=device). Constant values give the same result; random numbers come from
    another generator, so those are not a safe fix.

When it stays silent
    At start-up, in evaluation code, and for data that only exists on the host.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import add_keyword
from underfed.audit.finding import Edit, Fix, Hit, Sure, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.tensors import is_device, moves

_EXACT = frozenset(["zeros", "ones", "full", "empty", "eye"])
_MORE = frozenset(["arange", "linspace", "rand", "randn", "randint", "randperm", "normal"])
_COPIES = frozenset(["tensor", "as_tensor", "from_numpy", "FloatTensor", "LongTensor"])


def check(code: Code) -> Iterator[Hit]:
    """Find `torch.zeros(...).to(device)` in the step, and in forward of models."""
    for node, sure in _candidates(code):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if not isinstance(inner, ast.Call) or not moves(code.module, node):
            continue
        name = code.module.called(inner)
        kind = name.rpartition(".")[2]
        if not name.startswith("torch.") or name.count(".") != 1:
            continue
        if kind in _EXACT | _MORE and code.keyword(inner, "device") is None:
            yield Hit(
                node,
                f"{name}() fills a tensor on the CPU and copies it to the GPU, in every step",
                sure,
                _fix(code, node, inner, kind),
            )
        elif kind in _COPIES:
            level = least(
                sure,
                "likely"
                if kind == "tensor" and isinstance(inner.args[0] if inner.args else None, ast.Constant)
                else "possible",
            )
            yield Hit(node, f"{name}() makes a tensor of host data and copies it to the GPU, in every step", level)


def _candidates(code: Code) -> Iterator[tuple[ast.Call, Sure]]:
    seen = set()
    for hot in code.hot:
        if isinstance(hot.node, ast.Call):
            seen.add(hot.node)
            yield hot.node, hot.sure
    for cls in code.module.class_of.values():
        forward = cls.methods.get("forward")
        if forward is not None and code.project.is_model(cls):
            for node in ast.walk(forward.node):
                if isinstance(node, ast.Call) and node not in seen:
                    yield node, "likely"


def _fix(code: Code, node: ast.Call, inner: ast.Call, kind: str) -> Fix | None:
    func = node.func
    assert isinstance(func, ast.Attribute)  # noqa: S101 - for the type checker; the caller looked
    extra = [k for k in node.keywords if k.arg not in {"device", "non_blocking"}]
    if extra or len(node.args) > 1 or any(k.arg is None for k in inner.keywords):
        return None
    if func.attr == "cuda":
        device = f'"cuda:{{{ast.unparse(node.args[0])}}}"' if node.args else '"cuda"'
        if node.args:
            return None
    else:
        first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "device"), None)
        if first is None or not is_device(code.module, first):
            return None
        device = code.module.text(first)
    edit = add_keyword(code.module, inner, "device", device)
    if edit is None:
        return None
    _, end = code.module.span(inner)
    _, stop = code.module.span(node)
    title = "build it on the device" if kind in _EXACT else "build it on the device (its numbers can differ)"
    return Fix(title, kind in _EXACT, (edit, Edit(end, stop, "")))


RULE = AuditRule(
    id="X45",
    name="tensor-built-on-cpu-then-moved",
    settle="`underfed run`: copies to the device a step that are not the batch",
    doc=__doc__ or "",
    check=check,
)

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
from underfed.audit.scopes import bindings
from underfed.audit.tensors import is_device, moves

_EXACT = frozenset(["zeros", "ones", "full", "empty", "eye"])
_MORE = frozenset(["arange", "linspace", "rand", "randn", "randint", "randperm", "normal"])
_COPIES = frozenset(["tensor", "as_tensor", "from_numpy", "Tensor", "FloatTensor", "LongTensor"])
#: Steps between building and moving: those that give the same on either side, and those that draw numbers.
_SHAPES = frozenset(
    ["long", "float", "int", "bool", "half", "double", "unsqueeze", "squeeze", "view", "reshape", "expand", "repeat"]
) | frozenset(["t", "transpose", "permute", "contiguous", "detach", "type"])
_FILLS = frozenset(
    ["normal_", "uniform_", "random_", "fill_", "bernoulli_", "mul_", "add_", "sub_", "div_", "triu", "tril"]
) | frozenset(["requires_grad_"])  # behind the move it makes a leaf, before it none


def check(code: Code) -> Iterator[Hit]:
    """Find `torch.zeros(...).to(device)` in the step, and in forward of models."""
    for node, sure in _candidates(code):
        if not moves(code.module, node) or not isinstance(node.func, ast.Attribute):
            continue
        inner, exact = _creation(node.func.value)
        if isinstance(inner, ast.Name):
            yield from _named(code, node, inner, sure)
        if not isinstance(inner, ast.Call):
            continue
        kind = _kind(code, inner)
        if kind in _EXACT | _MORE:
            text = f"torch.{kind}() fills a tensor on the CPU and copies it to the GPU, in every step"
            yield Hit(node, text, sure, _fix(code, node, inner, kind) if exact else None)
        elif kind in _COPIES:
            first = inner.args[0] if inner.args else None
            level: Sure = "likely" if kind == "tensor" and _is_written_out(first) else "possible"
            text = f"torch.{kind}() makes a tensor of host data and copies it to the GPU, in every step"
            yield Hit(node, text, least(sure, level))


def _kind(code: Code, call: ast.Call) -> str | None:
    """Return which function of torch makes a tensor without a device; None for anything else."""
    name = code.module.called(call)
    if not name.startswith("torch.") or name.count(".") != 1 or code.keyword(call, "device") is not None:
        return None
    return name.rpartition(".")[2]


def _creation(node: ast.expr) -> tuple[ast.expr, bool]:
    """Return what a chain like `torch.ones(n).long().unsqueeze(0)` starts from, and whether its steps are exact."""
    exact = True
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in _SHAPES | _FILLS:
            break
        exact = exact and node.func.attr in _SHAPES
        node = node.func.value
    return node, exact


def _is_written_out(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.List | ast.Tuple) and all(isinstance(part, ast.Constant) for part in node.elts)
    )


def _named(code: Code, node: ast.Call, name: ast.Name, sure: Sure) -> Iterator[Hit]:
    """Find `x = torch.randn(n)` in the step that `x = x.to(device)` moves there."""
    stored = bindings(code.module, code.module.function_of(node)).get(name.id, [])
    others = [value for value in stored if value is None or node not in ast.walk(value)]
    if len(others) != 1 or others[0] is None or others[0].lineno > node.lineno:
        return
    inner, _ = _creation(others[0])
    kind = _kind(code, inner) if isinstance(inner, ast.Call) else None
    if kind in _EXACT | _MORE and code.whole.heat.level(code.module, inner) is not None:
        text = f"torch.{kind}() fills {name.id} on the CPU, and this copies it to the GPU, in every step"
        yield Hit(node, text, sure)


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
    _, end = code.module.span(func.value)
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

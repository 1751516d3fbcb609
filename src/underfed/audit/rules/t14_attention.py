"""Attention is written out as softmax(q @ k.T) @ v, so its scores are stored in full.

Why it costs
    The T x T scores of every head are written to memory and read again, forward and backward; a fused kernel
    never stores them, and the cost grows with the square of the sequence.

Fix
    torch.nn.functional.scaled_dot_product_attention(q, k, v, ...). Sums run in another order, so no safe fix
    exists.

When it stays silent
    The module also has a fused way, the weights are used for something else, or the product is no attention.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.module import Function
from underfed.audit.rule import AuditRule, Code
from underfed.audit.scopes import inside

_FUSED = ("scaled_dot_product_attention", "flash_attn", "memory_efficient_attention", "ALL_ATTENTION_FUNCTIONS", "sdpa")
_PASSES = frozenset(
    [
        "masked_fill",
        "masked_fill_",
        "float",
        "half",
        "to",
        "type_as",
        "contiguous",
        "dropout",
        "attn_drop",
        "attn_dropout",
        "view",
        "reshape",
        "add",
        "mul",
        "div",
    ]
)


def check(code: Code) -> Iterator[Hit]:
    """Find softmax of a product of queries and keys that multiplies values."""
    if any(word in code.module.source for word in _FUSED) or "softmax" not in code.module.source.lower():
        return
    for function in code.module.all_functions.values():
        yield from _in_function(code, function)


def _in_function(code: Code, function: Function) -> Iterator[Hit]:
    nodes = inside(function.node)
    stored: dict[str, list[tuple[int, ast.expr]]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            stored.setdefault(node.targets[0].id, []).append((node.lineno, node.value))
    for node in nodes:
        if not isinstance(node, ast.Call) or not _is_softmax(node):
            continue
        scores = (
            node.func.value
            if _is_method(node) and isinstance(node.func, ast.Attribute)
            else node.args[0]
            if node.args
            else None
        )
        if scores is None or not _is_scores(code, scores, stored, node.lineno, 0):
            continue
        weights = _name_of(code, node)
        if weights is None:
            used, other = _is_product(code.module.parents.get(node)), False
        else:
            uses = [
                n
                for n in nodes
                if isinstance(n, ast.Name)
                and n.id == weights
                and isinstance(n.ctx, ast.Load)
                and n.lineno > node.lineno
            ]
            used = any(_multiplies(code, n) for n in uses)
            other = any(
                isinstance(one, ast.Return) and not _multiplies(code, n) for n in uses for one in code.module.up(n)
            )
        if used:
            yield Hit(
                node,
                "attention is written out: softmax(q @ k.T) @ v stores the scores of every pair",
                "possible" if other else "likely",
            )


def _is_method(node: ast.Call) -> bool:
    text = ast.unparse(node.func)
    return isinstance(node.func, ast.Attribute) and not text.startswith(("F.", "torch.", "nn.", "self."))


def _is_softmax(node: ast.Call) -> bool:
    return (
        ast.unparse(node.func).rpartition(".")[2] in {"softmax", "_softmax"}
        or ast.unparse(node.func) == "nn.Softmax(dim=-1)"
    )


def _is_product(node: ast.AST | None) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in {"matmul", "bmm", "einsum"}


def _is_scores(code: Code, node: ast.AST, stored: dict[str, list[tuple[int, ast.expr]]], line: int, depth: int) -> bool:
    """Return whether an expression is a scaled, masked product with a transposed operand."""
    if depth > 10:
        return False
    if _is_product(node):
        text = ast.unparse(node)
        return (
            "transpose" in text
            or ".mT" in text
            or "permute" in text
            or "einsum" in text
            or _transposed(node, stored, line)
        )
    if isinstance(node, ast.Name):
        before = [value for at, value in stored.get(node.id, []) if at <= line]
        return any(
            _is_scores(code, value, stored, value.lineno - (1 if node.id in ast.unparse(value) else 0), depth + 1)
            for value in before
        )
    if isinstance(node, ast.BinOp):
        return any(_is_scores(code, side, stored, line, depth + 1) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        inner: list[ast.AST] = list(node.args[:2])
        if isinstance(node.func, ast.Attribute) and node.func.attr in _PASSES:
            inner.append(node.func.value)
        return ast.unparse(node.func).rpartition(".")[2] in _PASSES | {"where"} and any(
            _is_scores(code, one, stored, line, depth + 1) for one in inner
        )
    return False


def _transposed(node: ast.AST, stored: dict[str, list[tuple[int, ast.expr]]], line: int) -> bool:
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    keys = {name for name in names if name.lower().strip("_").startswith(("k", "key"))}
    return any(
        "transpose(-" in ast.unparse(v) or "permute" in ast.unparse(v)
        for name in keys
        for at, v in stored.get(name, [])
        if at <= line
    )


def _name_of(code: Code, node: ast.AST) -> str | None:
    for around in code.module.up(node):
        if isinstance(around, ast.Assign):
            target = around.targets[0]
            return target.id if isinstance(target, ast.Name) else None
        if isinstance(around, ast.stmt) or _is_product(around):
            return None
    return None


def _multiplies(code: Code, node: ast.AST) -> bool:
    for around in code.module.up(node)[:4]:
        if _is_product(around):
            return True
        if isinstance(around, ast.stmt):
            return False
    return False


RULE = AuditRule(
    id="T14",
    name="attention-materializes-scores",
    settle="`underfed read` on a trace: softmax and batched products where one fused kernel would be",
    doc=__doc__ or "",
    check=check,
)

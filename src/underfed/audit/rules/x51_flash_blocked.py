"""scaled_dot_product_attention gets what keeps it from its fast kernels: a causal mask as a tensor, or the math
backend.

Why it costs
    The flash kernel takes no mask tensor; with is_causal=True it skips half of the work, with a mask it is not
    chosen.

Fix
    is_causal=True instead of a causal mask; do not pin the math backend. Sums run in another order, so no safe
    fix exists.

When it stays silent
    The mask is not (only) a causal one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded
from underfed.audit.scopes import assignments, own_values

_CAUSAL = ("torch.tril", "torch.triu")


def check(code: Code) -> Iterator[Hit]:
    """Find causal masks as tensors, and the math backend."""
    for call in code.calls:
        name = code.module.called(call)
        if name == "torch.nn.functional.scaled_dot_product_attention":
            mask = call.args[3] if len(call.args) > 3 else code.keyword(call, "attn_mask")
            if mask is not None and guarded(code, call) is not None and _is_causal(code, mask, 0):
                yield Hit(
                    call, "a causal mask as a tensor rules out the flash kernel: is_causal=True needs none", "likely"
                )
        elif name in {"torch.nn.attention.sdpa_kernel", "torch.backends.cuda.sdp_kernel"}:
            sure = guarded(code, call)
            if sure is not None and _only_math(code, call):
                yield Hit(call, "only the math backend is allowed: attention stores its scores", sure)
        elif name == "torch.backends.cuda.enable_flash_sdp" and call.args:
            if (
                isinstance(call.args[0], ast.Constant)
                and call.args[0].value is False
                and guarded(code, call) is not None
            ):
                yield Hit(call, "the flash kernel is switched off", "likely")


def _only_math(code: Code, call: ast.Call) -> bool:
    first = call.args[0] if call.args else code.keyword(call, "backends")
    parts = first.elts if isinstance(first, ast.List | ast.Tuple) else [first] if first is not None else []
    if parts:
        return all((code.module.qualified(part) or "").endswith("SDPBackend.MATH") for part in parts)
    return code.is_false(call, "enable_flash") and code.is_false(call, "enable_mem_efficient")


def _is_causal(code: Code, node: ast.expr, depth: int) -> bool:
    if depth > 5:
        return False
    if isinstance(node, ast.Name):
        function = code.module.function_of(node)
        stored = assignments(function).get(node.id, []) if function else code.module.constants.get(node.id, [])
        return len(stored) == 1 and stored[0] is not None and _is_causal(code, stored[0], depth + 1)
    if isinstance(node, ast.Subscript):
        return _is_causal(code, node.value, depth + 1)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        function = code.module.function_of(node)
        stored = (
            own_values(function.cls).get(node.attr, []) if function is not None and function.cls is not None else []
        )
        return len(stored) == 1 and _is_causal(code, stored[0], depth + 1)
    if isinstance(node, ast.Call):
        name = code.module.called(node)
        if name in _CAUSAL:
            return "ones" in ast.unparse(node) or "full" in ast.unparse(node)
        if name.endswith("generate_square_subsequent_mask"):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in {
            "to",
            "bool",
            "view",
            "unsqueeze",
            "triu",
            "tril",
            "masked_fill",
            "cuda",
        }:
            made = node.func.attr in {"triu", "tril"} and "ones" in ast.unparse(node.func.value)
            return (
                made
                or _is_causal(code, node.func.value, depth + 1)
                or any(_is_causal(code, arg, depth + 1) for arg in node.args[:1] if node.func.attr == "masked_fill")
            )
    return False


RULE = AuditRule(
    id="X51",
    name="flash-attention-ruled-out",
    settle="`underfed read` on a trace: which attention kernel runs",
    doc=__doc__ or "",
    check=check,
)

"""What a condition says about how often its branch runs."""

from __future__ import annotations

import ast
import re
from typing import Literal

#: rare: not each step (every n steps, at the end, on an error); flag: each step, where a setting says so;
#: always: as often as what is around it.
Guard = Literal["rare", "flag", "always"]

_RARE = re.compile(
    r"log|print|save|sav|eval|valid|\bval\b|test|display|vis(?!ion)|debug|verbos|check|report|interval|freq|every|should"
    r"|last|first|done|finish|time|elapsed|isnan|isinf|isfinite|is_nan|nan|overflow|best|patience|warm|progress|summary"
    r"|sync_grad|sync_gradients|is_step|update_step|do_step|plot|profil|sample_img",
    re.IGNORECASE,
)
_RANK = re.compile(r"rank|is_main|is_master|main_process|is_world|master", re.IGNORECASE)
_COUNTER = re.compile(r"step|iter|batch_idx|batch_i|\bidx\b|\bi\b|\bit\b|epoch|count|\bn\b|\bt\b|num_", re.IGNORECASE)


def guard(test: ast.expr, assigned: dict[str, ast.expr] | None = None, depth: int = 0) -> Guard:
    """Judge a test; `assigned` are local names with the one expression that each stands for."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        kinds = [guard(part, assigned, depth) for part in test.values]
        return "rare" if "rare" in kinds else "flag" if "flag" in kinds else "always"
    if isinstance(test, ast.BoolOp):
        kinds = [guard(part, assigned, depth) for part in test.values]
        return "always" if "always" in kinds else "rare" if "rare" in kinds else "flag"
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = test.operand
        return guard(inner, assigned, depth)
    if isinstance(test, ast.Constant):
        return "always" if test.value else "rare"
    if isinstance(test, ast.Name) and assigned and depth < 3 and test.id in assigned:
        return guard(assigned[test.id], assigned, depth + 1)
    if every_n(test):
        return "rare"
    text = ast.unparse(test)
    if _RANK.search(text):
        return "always"
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        left, right = test.left, test.comparators[0]
        if isinstance(right, ast.Constant) and (right.value is None or isinstance(right.value, str)):
            return "flag"
        if isinstance(test.ops[0], ast.Eq) and _COUNTER.search(text):
            return "rare"
        if isinstance(test.ops[0], ast.Lt | ast.LtE) and _COUNTER.search(ast.unparse(left)):
            return "rare"
        if isinstance(test.ops[0], ast.In) and _COUNTER.search(ast.unparse(left)):
            return "rare"
    return "rare" if _RARE.search(text) else "flag"


def every_n(test: ast.expr) -> bool:
    """Return whether a test counts steps by a remainder."""
    return any(isinstance(node, ast.Mod) for node in ast.walk(test))


def leaves(body: list[ast.stmt]) -> bool:
    """Return whether a branch ends by leaving the loop, the function or the program."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Raise | ast.Break | ast.Continue | ast.Return):
        return True
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(call, ast.Call) and ast.unparse(call.func) in {"exit", "quit", "sys.exit", "os._exit"}

"""Work that the training loop does in every step and that once in a while would do: X6, X7, X8, X9, X10, X12."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from underfed.audit.edits import drop_statement
from underfed.audit.finding import Fix, Hit, Sure
from underfed.audit.rule import Code


def calls(
    code: Code, judge: Callable[[ast.Call, str, str], tuple[str, Sure] | None], *, drop: bool = False
) -> Iterator[Hit]:
    """Judge each call that runs in every step; `judge` gets it with its qualified name and its method's name."""
    from underfed.audit.finding import least

    for call, name, sure in code.hot_calls():
        found = judge(call, name, code.method_name(call))
        if found is None:
            continue
        text, most = found
        edit = (
            drop_statement(code.module, call) if drop and isinstance(code.module.parents.get(call), ast.Expr) else None
        )
        yield Hit(call, text, least(sure, most), Fix("remove it", False, (edit,)) if edit else None)

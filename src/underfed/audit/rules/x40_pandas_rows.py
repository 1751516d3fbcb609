"""Samples are looked up in a pandas object row by row.

Why it costs
    `.iloc[i]` and `.loc[i]` build a Series for each access: tens of microseconds to read a few bytes, for every
    sample.

Fix
    Take the columns out once: self.paths = df["path"].to_numpy() in __init__, then self.paths[i].

When it stays silent
    Outside of what runs for every sample, and on a row that was looked up already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.scopes import assignments


def check(code: Code) -> Iterator[Hit]:
    """Find row access in `__getitem__`, and iterrows in the step."""
    for hot in code.sampled:
        node = hot.node
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and isinstance(node.ctx, ast.Load):
            if node.value.attr in {"iloc", "loc", "iat", "at"} and not isinstance(node.slice, ast.Slice):
                surely = (
                    node.value.attr in {"iloc", "iat"}
                    or "df" in ast.unparse(node.value)
                    or "pandas" in code.module.source
                )
                sure = hot.sure if surely else least(hot.sure, "likely")
                if not _jax(code, node) and not _of_a_row(code, node.value.value):
                    yield Hit(node, f"{code.short(node)} looks up a pandas row for every sample", sure)
    for hot in [*code.sampled, *code.hot]:
        if isinstance(hot.node, ast.Call) and code.method_name(hot.node) in {"iterrows", "itertuples"}:
            yield Hit(hot.node, f"{code.method_name(hot.node)}() walks a table in Python", hot.sure)


def _of_a_row(code: Code, node: ast.expr) -> bool:
    """Return whether a name holds a row that was looked up already: `row = df.iloc[i]`, then `row.loc["path"]`."""
    function = code.module.function_of(node)
    stored = assignments(function).get(node.id, []) if function is not None and isinstance(node, ast.Name) else []
    return bool(stored) and all(
        isinstance(one, ast.Subscript) and isinstance(one.value, ast.Attribute) and one.value.attr in {"iloc", "loc"}
        for one in stored
    )


def _jax(code: Code, node: ast.Subscript) -> bool:
    return isinstance(code.module.parents.get(node), ast.Attribute) and "jax" in code.module.source


RULE = AuditRule(
    id="X40",
    name="pandas-row-access-per-sample",
    settle="`underfed run`: share of the workers' samples in pandas, with the line",
    doc=__doc__ or "",
    check=check,
)

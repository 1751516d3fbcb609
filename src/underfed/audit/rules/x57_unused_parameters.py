"""DistributedDataParallel searches for unused parameters in every step.

Why it costs
    find_unused_parameters=True walks the whole graph after every forward pass, before the first gradient can be
    sent.

Fix
    Leave it out where every parameter gets a gradient, or static_graph=True where the same ones are always
    unused.

When it stays silent
    It depends on a setting.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find the search switched on."""
    for call in code.calls:
        name = code.module.called(call)
        if code.method_name(call) in {
            "DistributedDataParallel",
            "DDP",
            "DistributedDataParallelKwargs",
            "DDPStrategy",
        } and code.is_true(call, "find_unused_parameters"):
            edit = set_keyword(code.module, call, "find_unused_parameters", "False")
            yield Hit(
                call,
                "find_unused_parameters=True walks the graph in every step",
                "likely",
                Fix("do not search", False, (edit,)) if edit else None,
            )
        elif name.endswith("Trainer") and isinstance(kind := code.keyword(call, "strategy"), ast.Constant):
            if isinstance(kind.value, str) and "find_unused_parameters_true" in kind.value:
                yield Hit(kind, "ddp_find_unused_parameters_true walks the graph in every step", "likely")


RULE = AuditRule(
    id="X57",
    name="unused-parameters-searched",
    settle="torch warns at the first step when none is unused",
    doc=__doc__ or "",
    check=check,
)

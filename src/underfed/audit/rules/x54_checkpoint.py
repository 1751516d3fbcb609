"""Activation checkpointing without use_reentrant.

Why it costs
    The old re-entrant way runs the whole graph of the block again even if part of it is needed, keeps the random
    state in Python and does not work with torch.compile's graph; torch asks for the choice to be made.

Fix
    checkpoint(f, x, use_reentrant=False). Gradients are the same in theory and not to the bit, so no safe fix
    exists.

When it stays silent
    The argument is given, or arguments come from where they cannot be followed.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code

_NAMES = frozenset({"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"})


def check(code: Code) -> Iterator[Hit]:
    """Find checkpoint calls that leave the choice open."""
    for call in code.calls:
        if code.module.called(call) not in _NAMES or any(k.arg is None for k in call.keywords):
            continue
        if code.keyword(call, "use_reentrant") is None:
            edit = set_keyword(code.module, call, "use_reentrant", "False")
            fix = Fix("use_reentrant=False", False, (edit,)) if edit else None
            yield Hit(call, "checkpoint() without use_reentrant", "likely", fix)


RULE = AuditRule(
    id="X54",
    name="checkpoint-way-not-chosen",
    settle="two short runs, one with use_reentrant=False",
    doc=__doc__ or "",
    check=check,
)

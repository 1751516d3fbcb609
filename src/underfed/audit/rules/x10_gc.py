"""gc.collect() runs in every step.

Why it costs
    A full collection walks every object of the process: tens to hundreds of milliseconds on the training thread.

Fix
    Remove it; where collections at random moments disturb, gc.freeze() after the set-up, or collect every N
    steps.

When it stays silent
    In error handlers, behind a condition that counts steps, and outside the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls


def check(code: Code) -> Iterator[Hit]:
    """Find collections in the step."""
    text = "gc.collect() walks all objects in every step"
    return calls(code, lambda call, name, method: (text, "certain") if name == "gc.collect" else None, drop=True)


RULE = AuditRule(
    id="X10",
    name="garbage-collection-in-step",
    settle="`underfed run`: time in the collector",
    doc=__doc__ or "",
    check=check,
)

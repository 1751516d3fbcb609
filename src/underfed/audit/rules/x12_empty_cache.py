"""torch.cuda.empty_cache() runs in every step.

Why it costs
    It waits for the device and gives the memory back to the driver, and the next step asks for it again.

Fix
    Remove it. Where memory is short because of fragments, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps
    more.

When it stays silent
    In error handlers, behind a condition that counts steps, and outside the step.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls

_NAMES = frozenset({"torch.cuda.empty_cache", "torch.cuda.memory.empty_cache", "torch.mps.empty_cache"})


def check(code: Code) -> Iterator[Hit]:
    """Find empty_cache in the step."""
    text = "empty_cache() gives memory back in every step, and the next step asks for it again"
    return calls(code, lambda call, name, method: (text, "certain") if name in _NAMES else None, drop=True)


RULE = AuditRule(
    id="X12",
    name="cache-emptied-in-step",
    settle="`underfed run`: time in the call, and allocations from the driver",
    doc=__doc__ or "",
    check=check,
)

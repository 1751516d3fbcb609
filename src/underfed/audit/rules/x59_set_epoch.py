"""A DistributedSampler is not told the epoch.

Why it costs
    Without set_epoch(epoch) every epoch has the same order and the same part for each process: not slower, but
    more epochs for the same loss.

Fix
    sampler.set_epoch(epoch) at the start of each epoch. Results change, so no safe fix exists.

When it stays silent
    Something in the project calls set_epoch, a library does it (Accelerate, Lightning), or the sampler does not
    shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find shuffling samplers in projects that never call set_epoch."""
    if code.project.mentions(r"set_epoch|Accelerator\(|\bFabric\(|lightning"):
        return
    for call in code.calls:
        if code.module.called(call) == "torch.utils.data.DistributedSampler" and not code.is_false(call, "shuffle"):
            if not any(word in code.module.text(call).lower() for word in ("val", "test", "eval")):
                yield Hit(call, "set_epoch() is never called: every epoch has the same order", "likely")


RULE = AuditRule(
    id="X59",
    name="sampler-without-set-epoch",
    settle="the first samples of two epochs",
    doc=__doc__ or "",
    check=check,
)

"""nn.DataParallel drives all GPUs from one process.

Why it costs
    The model is copied to every GPU in every step, threads share one interpreter, and the first GPU gathers all
    outputs.

Fix
    DistributedDataParallel with one process a GPU (torchrun). Batch statistics and batch size a GPU change with
    it.

When it stays silent
    On one GPU it costs little; how many there are is not in the source.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find DataParallel around models."""
    for call in code.calls:
        if code.module.called(call) == "torch.nn.DataParallel" and call.args:
            yield Hit(
                call, "DataParallel copies the model to every GPU in every step, from one Python process", "likely"
            )


RULE = AuditRule(
    id="X56",
    name="data-parallel-in-one-process",
    settle="time of an epoch on one GPU and on all",
    doc=__doc__ or "",
    check=check,
)

"""Workers may prepare only one batch ahead.

Why it costs
    With prefetch_factor=1 a worker waits until its batch is taken; one slow sample then stops the loop, where the
    default of two batches a worker would have hidden it.

Fix
    Leave prefetch_factor out (2), or 4 where samples differ much in time and memory allows.

When it stays silent
    No workers, the default, or a number that cannot be followed.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.trainers import trainer_arguments


def check(code: Code) -> Iterator[Hit]:
    """Find loaders that prefetch one batch a worker."""
    for loader in code.loaders:
        ahead = loader.argument("prefetch_factor", None)
        if not ahead.known:
            code.not_known(loader.call, "prefetch_factor of a DataLoader")
        elif ahead.value == 1 and not isinstance(ahead.value, bool):
            edit = set_keyword(code.module, loader.call, "prefetch_factor", "2")
            fix = Fix("prepare two batches a worker", False, (edit,)) if edit else None
            text = "prefetch_factor is 1: a worker waits until its only batch is taken"
            yield Hit(loader.call, text, "likely" if ahead.is_default or loader.evaluates else "certain", fix)
    for arguments in trainer_arguments(code.module, code.whole.values):
        ahead = arguments.field("dataloader_prefetch_factor")
        if ahead.known and ahead.value == 1:
            yield Hit(
                arguments.call, "dataloader_prefetch_factor is 1: a worker waits until its batch is taken", "likely"
            )


RULE = AuditRule(
    id="X65",
    name="prefetch-of-one-batch",
    settle="`underfed run`: waits for batches while workers are idle",
    doc=__doc__ or "",
    check=check,
)

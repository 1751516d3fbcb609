"""Loader workers are started anew in every epoch.

Why it costs
    Without persistent_workers every pass over the loader starts new processes, which import, open and fill their
    queues again while the device waits; a loader that is made inside the epoch loop starts them even so.

Fix
    persistent_workers=True, and make loaders once, before the loop. Workers that live on keep their random state
    and their copy of the data set, so the fix is not a safe one.

When it stays silent
    No workers, a single pass, or settings that cannot be followed.
"""

from __future__ import annotations

from collections.abc import Iterator

from underfed.audit.edits import set_keyword
from underfed.audit.finding import Fix, Hit, Sure, least
from underfed.audit.rule import AuditRule, Code


def check(code: Code) -> Iterator[Hit]:
    """Find loaders whose workers live for one epoch."""
    for loader in code.loaders:
        workers = loader.workers
        if not workers.known or not isinstance(workers.value, int) or workers.value <= 0:
            continue
        if loader.in_loop:
            yield Hit(loader.call, "the loader is made anew in every epoch, with all of its workers", "certain")
            continue
        keeps = loader.argument("persistent_workers", False)
        if not keeps.known:
            code.not_known(loader.call, "persistent_workers of a DataLoader")
            continue
        if keeps.value is not False:
            continue
        context = loader.given("multiprocessing_context")
        spawns = (context is not None and "spawn" in code.module.text(context)) or (
            context is None and code.project.mentions(r"set_start_method\(\s*(method\s*=\s*)?[\"'](spawn|forkserver)")
        )
        again = loader.used_again
        if not again and not loader.target.endswith("_dataloader") and not spawns:
            continue
        sure: Sure = "certain" if again and not workers.is_default else "likely"
        edit = set_keyword(code.module, loader.call, "persistent_workers", "True")
        fix = Fix("keep the workers between epochs", False, (edit,)) if edit else None
        slow = "; each is spawned, so it imports everything again" if spawns else ""
        message = f"{workers.value} workers are started anew in every epoch: persistent_workers is not set{slow}"
        yield Hit(loader.call, message, least(sure, "likely" if loader.evaluates else sure), fix)


RULE = AuditRule(
    id="T5",
    name="workers-restart-each-epoch",
    settle="`underfed run` over two epochs: the wait for the first batch of each",
    doc=__doc__ or "",
    check=check,
)

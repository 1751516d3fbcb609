"""An IterableDataset gives every worker the whole stream.

Why it costs
    Each of N workers reads and yields every sample, so an epoch holds N copies of the data and the storage is
    read N times.

Fix
    In __iter__, ask torch.utils.data.get_worker_info() and take this worker's part (itertools.islice(it, id,
    None, n)).

When it stays silent
    The loader has no workers, or something in the project asks for the worker or splits by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.module import Class
from underfed.audit.rule import AuditRule, Code

_ITERABLE = re.compile(r"(^|\.)IterableDataset$")
_SPLITS = re.compile(
    r"get_worker_info|worker_id|split_by_worker|split_by_node|worker_info|split_dataset_by_node|\.shard\(|set_shard"
)


def check(code: Code) -> Iterator[Hit]:
    """Find iterable data sets that do not ask which worker they are in."""
    for cls in code.module.class_of.values():
        if not code.project.is_kind(cls, _ITERABLE) or "__iter__" not in cls.methods:
            continue
        if _SPLITS.search(code.module.source):
            continue
        counts = [
            one.workers
            for one in code.whole.loaders
            if isinstance(one.dataset_class, Class) and one.dataset_class is cls
        ]
        busy = [count for count in counts if count.known and isinstance(count.value, int) and count.value > 1]
        if busy:
            sure: Sure = "likely" if busy[0].is_default else "certain"
            text = (
                f"each of {busy[0].value} workers gets the whole stream of {cls.node.name}: __iter__ does not split it"
            )
            yield Hit(cls.methods["__iter__"].node, text, sure)
        elif any(not count.known for count in counts):
            text = f"with workers, each gets the whole stream of {cls.node.name}: __iter__ does not split it"
            yield Hit(cls.methods["__iter__"].node, text, "possible")


RULE = AuditRule(
    id="X43",
    name="iterable-dataset-not-sharded",
    settle="count the samples of an epoch with one worker and with two",
    doc=__doc__ or "",
    check=check,
)

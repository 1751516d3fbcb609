"""A DataLoader has no worker processes, so the training loop makes its own batches.

Why it costs
    With num_workers=0 reading, decoding and transforming run on the training thread, and the device waits for all
    of it.

Fix
    DataLoader(..., num_workers=N): start at the CPUs that the run really has (`underfed box`). The order of
    random numbers in augmentations changes, so no safe fix exists.

When it stays silent
    The number comes from where it cannot be followed, samples are slices of tensors in memory (workers make those
    slower), or the data set makes whole batches. Barely possible in a demonstration beside a data set, and in scripts
    that evaluate or sample.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure, lower
from underfed.audit.loaders import Loader
from underfed.audit.loops import evaluates
from underfed.audit.module import Class
from underfed.audit.rule import AuditRule, Code
from underfed.audit.trainers import trainer_arguments

_TRAINS = re.compile(r"\.fit\(|\.train\(\s*\w|Trainer\(|backward\(|DataModule|train_dataloader")
_ITERABLE = re.compile(r"(^|\.)IterableDataset$")


def check(code: Code) -> Iterator[Hit]:
    """Find DataLoaders without workers."""
    for loader in code.loaders:
        workers = loader.workers
        if not workers.known:
            code.not_known(loader.call, "num_workers of a DataLoader")
            continue
        if workers.value != 0 or isinstance(workers.value, bool) or loader.in_memory or loader.batched_already:
            continue
        via = f" ({workers.via})" if workers.is_default else ""
        text = "num_workers is 0" if loader.given("num_workers") is not None else "num_workers is not given, so 0"
        sure = _sure(loader, workers.is_default) if _trains(code, loader) else "possible"
        yield Hit(loader.call, f"{text}{via}: the training thread makes every batch itself", sure)
    for arguments in trainer_arguments(code.module, code.whole.values):
        workers = arguments.field("dataloader_num_workers")
        if workers.known and workers.value == 0 and not isinstance(workers.value, bool):
            text = "dataloader_num_workers is 0: the training thread makes every batch itself"
            yield Hit(arguments.call, text, "possible")


def _sure(loader: Loader, is_default: bool) -> Sure:
    sure: Sure = "certain" if isinstance(loader.dataset_class, Class) or loader.given("transform") else "likely"
    if _streams(loader):
        return "possible"  # more workers would need a stream that can be split
    if is_default or loader.evaluates:
        sure = lower(sure)
    return sure if not (loader.evaluates and sure == "certain") else "likely"


def _trains(code: Code, loader: Loader) -> bool:
    """Return whether a loader may feed a training: not a demonstration, nor a script that evaluates or samples."""
    if code.hot or _TRAINS.search(code.module.source):
        return True
    if any(isinstance(one, ast.If) and "__main__" in ast.unparse(one.test) for one in code.module.up(loader.call)):
        return False
    names = code.module.name.split(".")[-2:]
    return not any(evaluates(name) or name.startswith("sampl") for name in names)


def _streams(loader: Loader) -> bool:
    found = loader.dataset_class
    return isinstance(found, Class) and loader.values.project.is_kind(found, _ITERABLE)


RULE = AuditRule(
    id="T4",
    name="too-few-loader-workers",
    settle="`underfed run`: the share of the step that waits for the loader",
    doc=__doc__ or "",
    check=check,
)

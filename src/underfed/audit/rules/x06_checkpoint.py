"""A checkpoint is written in every step.

Why it costs
    Copying the weights to the host and writing them blocks the training thread for as long as the disk takes.

Fix
    Write every N steps or at the end of an epoch.

When it stays silent
    Behind a condition that counts steps or compares results, with a strategy other than steps, and outside the step.
    What is saved into a buffer in memory is no checkpoint.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls
from underfed.audit.trainers import trainer_arguments

_SAVES = frozenset({"save_pretrained", "save_checkpoint", "save_state", "save_model", "save_weights"})


def check(code: Code) -> Iterator[Hit]:
    """Find checkpoints in the step, and trainers that are told to write one each step."""
    yield from (hit for hit in calls(code, _judge) if not _in_memory(code, hit.node))
    for call in code.calls:
        if code.method_name(call) == "ModelCheckpoint":
            every = code.value(code.keyword(call, "every_n_train_steps"))
            if every.known and every.value == 1:
                yield Hit(call, "every_n_train_steps=1 writes a checkpoint in every step", "likely")
    for arguments in trainer_arguments(code.module, code.whole.values):
        if arguments.each_step("save", "save_strategy", otherwise=True):
            yield Hit(arguments.call, "save_steps=1 writes a checkpoint in every step", "likely")


def _in_memory(code: Code, node: ast.AST) -> bool:
    """Return whether a call writes into a buffer: `with io.BytesIO() as file`, `file = io.BytesIO()`."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    function = code.module.function_of(node)
    for around in ast.walk(function.node if function is not None else code.module.tree):
        bound = getattr(around, "optional_vars", None) or getattr(around, "targets", [None])[0]
        made = getattr(around, "context_expr", None) or getattr(around, "value", None)
        if isinstance(bound, ast.Name) and bound.id in names and "BytesIO" in code.module.called(made or node):
            return True
    return False


def _judge(call: ast.Call, name: str, method: str) -> tuple[str, Sure] | None:
    if name in {"torch.save", "safetensors.torch.save_file", "pickle.dump", "joblib.dump", "numpy.save"}:
        return f"{name}() writes to disk in every step", "certain" if name != "numpy.save" else "likely"
    if method in _SAVES:
        return f"{method}() writes a checkpoint in every step", "likely"
    return None


RULE = AuditRule(
    id="X6",
    name="checkpoint-on-training-thread",
    settle="`underfed run`: time in the write, and the share of the run",
    doc=__doc__ or "",
    check=check,
)

"""Training runs in 32 bits: nothing in the project switches mixed precision on.

Why it costs
    Tensor cores do 16-bit products several times faster, and activations take half the memory and bandwidth.

Fix
    with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss; HF: bf16=True; Lightning:
    precision="bf16-mixed". Results change within the precision, so no safe fix exists.

When it stays silent
    Anything in the project speaks of autocast, half or bfloat16, Accelerate decides, or no GPU is spoken of.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.loops import evaluates
from underfed.audit.rule import AuditRule, Code
from underfed.audit.trainers import trainer_arguments

_MIXED = (
    r"autocast|bfloat16|\bbf16|fp16|float16|\bamp\b|\.half\(|mixed_precision|precision\s*=|GradScaler|deepspeed"
    r"|Accelerator|\bFabric\b|float64|\.double\("
)


def check(code: Code) -> Iterator[Hit]:
    """Find training loops on a GPU without mixed precision."""
    for arguments in trainer_arguments(code.module, code.whole.values):
        types = [arguments.field("bf16"), arguments.field("fp16")]
        chosen = arguments.is_given("bf16") or arguments.is_given("fp16")
        if not chosen and all(one.known and one.value is False for one in types):
            yield Hit(arguments.call, "TrainingArguments without bf16=True trains in 32 bits", "likely")
    for call in code.calls:
        name = code.method_name(call)
        open_ended = any(k.arg is None for k in call.keywords)
        if evaluates(code.module.name.rpartition(".")[2]):
            continue
        if name == "Trainer" and "lightning" in code.module.called(call) and not open_ended and not call.args:
            given = code.keyword(call, "precision")
            if given is None and not code.project.mentions(r"bf16|16-mixed|float16") and _on_gpu(code, call):
                yield Hit(call, "Trainer without precision trains in 32 bits", "likely")
    head = trains_in_32_bits(code)
    if head is not None:
        yield Hit(head, "this loop trains in 32 bits: nothing switches mixed precision on", "likely")


def trains_in_32_bits(code: Code) -> ast.AST | None:
    """Return the head of the module's first training loop, if nothing in the project speaks of 16 bits; else None."""
    if not code.project.uses_gpu or not code.whole.moves_batches or code.project.mentions(_MIXED):
        return None
    loops = [one for one in code.whole.training.loops if one.module is code.module]
    first = min(loops, key=lambda one: one.loop.lineno, default=None)
    if first is None or not any(code.whole.heat.level(code.module, node) for node in first.loop.body):
        return None
    return _head(first.loop)


def _on_gpu(code: Code, call: ast.Call) -> bool:
    kind = code.keyword(call, "accelerator")
    return kind is None or not (isinstance(kind, ast.Constant) and kind.value == "cpu")


def _head(loop: ast.For | ast.AsyncFor | ast.While) -> ast.AST:
    return loop.test if isinstance(loop, ast.While) else loop.iter


RULE = AuditRule(
    id="T13",
    name="fp32-where-16-bit-would-do",
    settle="`underfed run`: the types of the products, and how much of the step they are",
    doc=__doc__ or "",
    check=check,
)

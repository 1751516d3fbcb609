"""Validation runs in every step.

Why it costs
    The training waits for a pass over other data after each of its steps.

Fix
    Validate every N steps or at the end of an epoch.

When it stays silent
    Behind a condition that counts steps, with eval_steps that no strategy asks for, and outside the step.
    What goes over no data and has no model to put to evaluation only checks its arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.module import LOOPS, Function
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls
from underfed.audit.trainers import trainer_arguments

_NAME = re.compile(
    r"^_?(run_)?(evaluate|validate|validation|eval_model|evaluate_model|validate_model|run_eval|run_evaluation|do_eval|test_model)(_\w+)?$"
)


def check(code: Code) -> Iterator[Hit]:
    """Find validation in the step, and trainers that are told to validate after each."""

    def judge(call: ast.Call, name: str, method: str) -> tuple[str, Sure] | None:
        functions = code.project.resolve(code.module, call)[0] if _NAME.match(method) else []
        if any(_goes_over_data(one) for one in functions):
            return f"{method}() runs after every step", "likely"
        return None

    yield from calls(code, judge)
    for call in code.calls:
        every = code.value(code.keyword(call, "val_check_interval"))
        if code.method_name(call) == "Trainer" and every.known and type(every.value) is int and every.value == 1:
            yield Hit(call, "val_check_interval=1 validates after every batch (1.0 would be every epoch)", "likely")
    for arguments in trainer_arguments(code.module, code.whole.values):
        if arguments.each_step("eval", "eval_strategy", "evaluation_strategy", otherwise=False):
            yield Hit(arguments.call, "eval_steps=1 validates after every step", "likely")


def _goes_over_data(function: Function) -> bool:
    """Return whether a function may evaluate a model: what only checks its arguments has no loop and asks nothing."""
    return any(
        isinstance(node, LOOPS)
        or (isinstance(node, ast.Attribute) and node.attr in {"eval", "no_grad", "inference_mode"})
        for node in ast.walk(function.node)
    )


RULE = AuditRule(
    id="X7",
    name="validation-on-training-thread",
    settle="`underfed run`: the share of the run that is validation",
    doc=__doc__ or "",
    check=check,
)

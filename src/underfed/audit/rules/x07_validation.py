"""Validation runs in every step.

Why it costs
    The training waits for a pass over other data after each of its steps.

Fix
    Validate every N steps or at the end of an epoch.

When it stays silent
    Behind a condition that counts steps, and outside the step.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls

_NAME = re.compile(
    r"^_?(run_)?(evaluate|validate|validation|eval_model|evaluate_model|validate_model|run_eval|run_evaluation|do_eval|test_model)(_\w+)?$"
)


def check(code: Code) -> Iterator[Hit]:
    """Find validation in the step."""

    def judge(call: ast.Call, name: str, method: str) -> tuple[str, Sure] | None:
        if _NAME.match(method) and code.project.resolve(code.module, call)[0]:
            return f"{method}() runs after every step", "likely"
        return None

    return calls(code, judge)


RULE = AuditRule(
    id="X7",
    name="validation-on-training-thread",
    settle="`underfed run`: the share of the run that is validation",
    doc=__doc__ or "",
    check=check,
)

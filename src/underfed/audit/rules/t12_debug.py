"""A debugging aid is on for the whole run: anomaly detection, blocking launches, gradient checks, a profiler.

Why it costs
    Anomaly detection checks every gradient for NaN and keeps a stack for every operation; CUDA_LAUNCH_BLOCKING
    makes every launch wait; a profiler without a schedule records everything.

Fix
    Remove it, or switch it on by an option. torch.autograd.set_detect_anomaly(True) as a plain statement is on
    for the whole process, also where a with-block was meant.

When it stays silent
    Behind a setting that is off by default, and for a profiler with a schedule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace, set_keyword
from underfed.audit.finding import Fix, Hit, Sure, least, lower
from underfed.audit.guards import guard
from underfed.audit.loops import Training
from underfed.audit.module import FunctionNode
from underfed.audit.rule import AuditRule, Code

_ANOMALY = frozenset({"torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly"})
_PROFILERS = frozenset(
    {"torch.profiler.profile", "torch.autograd.profiler.profile", "torch.autograd.profiler.emit_nvtx"}
)
_ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "NCCL_P2P_DISABLE": "1",
    "TORCH_SHOW_CPP_STACKTRACES": None,
}


#: A function of such a name is called by those who want just that.
_ASKED_FOR = ("debug", "profile", "bench", "determin", "reproduc", "math")


def check(code: Code) -> Iterator[Hit]:
    """Find debugging aids that stay on."""
    for call in code.calls:
        name = code.module.called(call)
        if name in _ANOMALY and _is_on(code, call):
            sure = guarded(code, call)
            if sure is None:
                continue
            edit = (
                replace(code.module, call.args[0], "False")
                if call.args
                else set_keyword(code.module, call, "mode", "False")
            )
            yield Hit(
                call,
                "anomaly detection is on for the whole process",
                sure,
                Fix("switch it off", False, (edit,)) if edit else None,
            )
        elif name in {"torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly"}:
            sure = guarded(code, call)
            if sure is not None and (_around_training(code, call) or code.whole.heat.level(code.module, call)):
                yield Hit(call, "anomaly detection is on around the training step", sure)
        elif name in _PROFILERS and code.keyword(call, "schedule") is None and _around_training(code, call):
            yield Hit(call, "a profiler without a schedule records the whole loop", "likely")
        elif code.method_name(call) == "Trainer" and code.is_true(call, "detect_anomaly"):
            yield Hit(call, "anomaly detection is on: detect_anomaly=True", "certain")
        elif name == "torch.autograd.gradcheck" and code.whole.heat.level(code.module, call):
            yield Hit(call, "gradcheck runs in every step", code.whole.heat.level(code.module, call) or "likely")
        elif name in {"os.environ.setdefault", "os.putenv"} and len(call.args) == 2:
            yield from _variable(code, call, call.args[0], call.args[1])
    for node in code.module.of(ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and code.module.qualified(target.value) == "os.environ":
            yield from _variable(code, node, target.slice, node.value)


def _variable(code: Code, node: ast.AST, key: ast.expr, value: ast.expr) -> Iterator[Hit]:
    if not (isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and key.value in _ENVIRONMENT):
        return
    wanted = _ENVIRONMENT[str(key.value)]
    sure = guarded(code, node)
    if isinstance(value.value, str) and value.value.upper() == wanted and sure is not None:
        level: Sure = sure if key.value == "CUDA_LAUNCH_BLOCKING" else least(sure, "likely")
        yield Hit(node, f"{key.value}={value.value} is a debugging aid that slows every step", level)


def _is_on(code: Code, call: ast.Call) -> bool:
    mode = call.args[0] if call.args else code.keyword(call, "mode")
    value = code.value(mode)
    return mode is not None and value.known and value.value is True and not _as_block(code, call)


def _as_block(code: Code, call: ast.Call) -> bool:
    return isinstance(code.module.parents.get(call), ast.withitem) and not _around_training(code, call)


def guarded(code: Code, node: ast.AST) -> Sure | None:
    """Return how sure it is that a statement runs, by the conditions around it; None where it is for few cases."""
    sure: Sure = "certain"
    inner: ast.AST = node
    for around in code.module.up(node):
        if isinstance(around, ast.If) and inner is not around.test:
            value = code.value(around.test)
            taken = inner in around.body
            if value.known and bool(value.value) != taken:
                return None
            if not value.known:
                if guard(around.test) == "rare":
                    return None
                sure = lower(sure)
        elif isinstance(around, ast.ExceptHandler) or (
            isinstance(around, FunctionNode)
            and (any(word in around.name.lower() for word in _ASKED_FOR) or _is_block(code, around))
        ):
            return None
        inner = around
    return sure


def _is_block(code: Code, function: ast.AST) -> bool:
    """Return whether a function is written for `with`: what it switches, it switches back."""
    marks = [code.module.qualified(one) or "" for one in getattr(function, "decorator_list", [])]
    return getattr(function, "name", "") == "__enter__" or any(mark.endswith("contextmanager") for mark in marks)


def _around_training(code: Code, call: ast.Call) -> bool:
    block = next((one for one in code.module.up(call) if isinstance(one, ast.With)), None)
    if block is None:
        return False
    training: Training = code.whole.training
    return any(one.module is code.module and one.loop in set(ast.walk(block)) for one in training.loops)


RULE = AuditRule(
    id="T12",
    name="debug-mode-left-on",
    settle="`underfed run` says which debugging aids are on, and what they cost",
    doc=__doc__ or "",
    check=check,
)

"""Where training happens: the loops that reach backward or optimizer.step, directly or through calls."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from underfed.audit.module import LOOPS, Function, Module
from underfed.audit.project import Project

Loop = ast.For | ast.AsyncFor | ast.While
_OPTIMIZER = re.compile(
    r"(^|[._])(\w*optim\w*|opt|opts|solver|[a-z]_opt|opt_\w+|\w*_opt|opt[A-Z0-9]\w*)(\[\w+\]|\(\))?$"
)
_SCALER = re.compile(r"scaler|(^|\.)fabric$|(^|\.)accelerator$", re.IGNORECASE)
_ENGINE = re.compile(r"engine", re.IGNORECASE)
_EVALUATES = re.compile(
    r"(^|_)(eval|evaluate|evaluation|evaluator|valid|validate|validation|val|test|testing|infer|inference|predict|prediction"
    r"|generate|probe|visualize|visualise|demo|profile|benchmark|bench)(_|$|\d)",
    re.IGNORECASE,
)
_EVAL_ITER = re.compile(
    r"(^|[._\[\"'(])(x?val|valid|validation|eval|test|dev)(id)?([._\"'\])]|$|load|dl|data|set|batch|iter|gen)",
    re.IGNORECASE,
)


def evaluates(name: str) -> bool:
    """Return whether a function's name says that it evaluates and does not train."""
    return bool(_EVALUATES.search(name)) and "train" not in name.lower()


def is_evaluation_loop(loop: ast.AST) -> bool:
    """Return whether a loop goes over validation or test data."""
    return isinstance(loop, ast.For | ast.AsyncFor) and bool(_EVAL_ITER.search(ast.unparse(loop.iter)))


def is_step_call(module: Module, call: ast.Call) -> bool:
    """Return whether a call is a backward pass or an optimizer step."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in {"backward", "manual_backward"}:
        receiver = func.value
        if isinstance(receiver, ast.Call) and ast.unparse(receiver.func) == "super":
            return False
        return not (module.qualified(func) or "").startswith("torch.autograd.function")
    if func.attr != "step":
        return False
    receiver_text = ast.unparse(func.value)
    if _OPTIMIZER.search(receiver_text):
        return True
    if _SCALER.search(receiver_text) and call.args:
        return True
    return bool(_ENGINE.search(receiver_text)) and not call.args


@dataclass(frozen=True, eq=False)
class StepLoop:
    """A loop each pass of which trains; `function` is where it stands (None: the module's own level)."""

    module: Module
    function: Function | None
    loop: Loop


class Training:
    """The training loops of a project, and the functions that are (part of) a step or hold such a loop."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.loops: list[StepLoop] = []
        self.step_functions: set[Function] = set()
        self.loop_functions: set[Function] = set()
        self._seen: set[ast.AST] = set()
        self._calls: dict[str, list[tuple[Module, ast.Call]]] = {}
        queue: list[tuple[Module, ast.Call]] = []
        for module in project.modules:
            queue += [(module, call) for call in module.calls if is_step_call(module, call)]
        #: Modules with an optimizer step; in others backward may be asked for other reasons than training.
        self.updating = {module for module, call in queue if getattr(call.func, "attr", "") == "step"}
        while queue:
            module, call = queue.pop()
            if call in self._seen:
                continue
            self._seen.add(call)
            function = module.function_of(call)
            if function is not None and _is_machinery(project, function):
                continue
            loop = self._innermost(module, call)
            if loop is not None:
                self._add(module, function, loop)
            elif function is not None and function not in self.step_functions:
                self.step_functions.add(function)
                queue += self._callers(function)

    def _add(self, module: Module, function: Function | None, loop: Loop) -> None:
        if all(known.loop is not loop for known in self.loops):
            self.loops.append(StepLoop(module, function, loop))
            if function is not None:
                self.loop_functions.add(function)

    def _innermost(self, module: Module, call: ast.Call) -> Loop | None:
        for around in module.up(call):
            if isinstance(around, LOOPS):
                over = ast.unparse(around.iter) if isinstance(around, ast.For | ast.AsyncFor) else ""
                if isinstance(getattr(around, "iter", None), ast.Tuple | ast.List | ast.Set):
                    continue  # a few cases that are written out
                if "optim" not in over and not re.search(r"(^|[._])losses$|loss_(list|dict)|\.values\(\)$", over):
                    return around
        return None

    def _callers(self, function: Function) -> list[tuple[Module, ast.Call]]:
        found = []
        for module, call in self.project.calls_by_name.get(function.name, []):
            functions, _ = self.project.resolve(module, call)
            if function in functions and all(one in self.step_functions for one in functions):
                found.append((module, call))
        return found


def _is_machinery(project: Project, function: Function) -> bool:
    """Return whether a function implements autograd or an optimizer instead of using them."""
    if function.name in {"backward", "jvp", "vjp"}:
        return True
    around: Function | None = function
    while around is not None and around.cls is None:
        around = around.outer
    if around is None or around.cls is None:
        return False
    bases = project.ancestors(around.cls)[1]
    return any(base.rpartition(".")[2] in {"Optimizer", "LRScheduler", "_LRScheduler"} for base in bases)


def is_epoch_loop(loop: ast.AST) -> bool:
    """Return whether a loop counts epochs."""
    if not isinstance(loop, ast.For | ast.AsyncFor):
        return isinstance(loop, ast.While) and "epoch" in ast.unparse(loop.test)
    return "epoch" in ast.unparse(loop.target).lower() or "epoch" in ast.unparse(loop.iter).lower()

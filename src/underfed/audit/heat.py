"""Which nodes run in every step, or for every sample, and how sure that is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from underfed.audit.finding import ORDER, Sure, least, lower
from underfed.audit.guards import every_n, guard, leaves
from underfed.audit.loops import Training, evaluates, is_epoch_loop, is_evaluation_loop
from underfed.audit.module import LOOPS, Function, FunctionNode, Module
from underfed.audit.project import LIGHTNING, Project
from underfed.audit.scopes import assignments
from underfed.audit.values import Values

_DEEP = 8
_HOOKS = frozenset({"training_step", "compute_loss", "train_step"})
_TRAINER = re.compile(r"(^|\.)(\w*Trainer|LightningModule)$")


@dataclass(frozen=True)
class Hot:
    """A node that runs in every step (or for every sample); `origin` says through what."""

    node: ast.AST
    sure: Sure
    origin: str


class Heat:
    """Hot nodes by module."""

    def __init__(self, project: Project, training: Training, values: Values, *, start: bool = True) -> None:
        self.project, self.training, self.values = project, training, values
        self._nodes: dict[Module, dict[ast.AST, Hot]] = {}
        self._visited: dict[Function, Sure] = {}
        if start:
            self._find()

    def _find(self) -> None:
        project, training = self.project, self.training
        for one in training.loops:
            if one.function is not None and evaluates(one.function.name):
                continue
            origin = f"the training loop at {one.module.path}:{one.loop.lineno}"
            if is_evaluation_loop(one.loop):
                continue
            # A loop over epochs that trains without an inner loop takes the whole data set as one batch.
            sure: Sure = (
                "possible" if _counts_epochs(one.loop) else "certain" if one.module in training.updating else "likely"
            )
            self._block(one.module, one.function, one.loop.body, sure, origin, 0)
            if isinstance(one.loop, ast.While):
                self._emit(one.module, one.function, one.loop.test, sure, origin, 0)
        for function in training.step_functions:
            if function not in self._visited and not evaluates(function.name) and _steps(function):
                self.enter(function, "likely", f"the training step {function.name}()", 0)
        for module in project.modules:
            for cls in module.class_of.values():
                if not (project.is_kind(cls, LIGHTNING) or project.is_kind(cls, _TRAINER)):
                    continue
                for name in _HOOKS & cls.methods.keys():
                    self.enter(cls.methods[name], "certain", f"{cls.node.name}.{name}()", 0)

    def of(self, module: Module) -> list[Hot]:
        """Return a module's hot nodes in source order."""
        found = self._nodes.get(module, {}).values()
        return sorted(found, key=lambda hot: (getattr(hot.node, "lineno", 0), getattr(hot.node, "col_offset", 0)))

    def level(self, module: Module, node: ast.AST) -> Sure | None:
        """Return how sure it is that a node runs in every step, or None."""
        hot = self._nodes.get(module, {}).get(node)
        return hot.sure if hot else None

    def enter(self, function: Function, sure: Sure, origin: str, depth: int) -> None:
        """Take a function's body for hot."""
        before = self._visited.get(function)
        if depth > _DEEP or (before is not None and ORDER.index(before) <= ORDER.index(sure)):
            return
        self._visited[function] = sure
        self._block(function.module, function, function.node.body, sure, origin, depth)

    def _block(
        self, module: Module, function: Function | None, body: list[ast.stmt], sure: Sure, origin: str, depth: int
    ) -> None:
        known = _single(module, function)
        for statement in body:
            if isinstance(statement, FunctionNode | ast.ClassDef):
                continue
            parts: list[tuple[list[ast.stmt], Sure]] = []
            here: list[ast.AST] = [statement]
            if isinstance(statement, ast.If):
                here = [statement.test]
                parts = self._branches(module, statement, sure, known)
            elif isinstance(statement, LOOPS):
                here = [statement.iter] if not isinstance(statement, ast.While) else [statement.test]
                if not is_evaluation_loop(statement):
                    parts = [(statement.body, sure), (statement.orelse, sure)]
            elif isinstance(statement, ast.Try):
                here = []
                parts = [(part, sure) for part in (statement.body, statement.orelse, statement.finalbody)]
            elif isinstance(statement, ast.With | ast.AsyncWith):
                here = list(statement.items)
                parts = [(statement.body, sure)]
            elif isinstance(statement, ast.Match):
                here = [statement.subject]
                parts = [(case.body, lower(sure)) for case in statement.cases]
            for node in here:
                self._emit(module, function, node, sure, origin, depth)
            if not isinstance(statement, ast.stmt) or here != [statement]:
                self._put(module, statement, sure, origin)
            for part, level in parts:
                self._block(module, function, part, level, origin, depth)
            if isinstance(statement, ast.If) and leaves(statement.body) and guard(statement.test, known) == "rare":
                last = statement.body[-1]
                if isinstance(last, ast.Continue | ast.Return) and every_n(statement.test):
                    return  # `if step % n: continue`: what follows runs every n steps
            elif isinstance(statement, ast.If) and _is_way_out(statement, function):
                sure = lower(sure)

    def _branches(
        self, module: Module, statement: ast.If, sure: Sure, known: dict[str, ast.expr]
    ) -> list[tuple[list[ast.stmt], Sure]]:
        """Return the branches of a condition that run in (nearly) every step."""
        value = self.values.of(module, statement.test)
        if value.known and not value.is_default:
            return [(statement.body if value.value else statement.orelse, sure)]
        kind = guard(statement.test, known)
        if value.known:  # a default: whoever starts the program can choose otherwise
            return [(statement.body if value.value else statement.orelse, lower(sure))] if kind != "rare" else []
        level = lower(sure) if kind == "flag" else sure
        parts = [(statement.orelse, level)]
        if kind != "rare" and not leaves(statement.body):
            parts.insert(0, (statement.body, level))
        return parts

    def _put(self, module: Module, node: ast.AST, sure: Sure, origin: str) -> None:
        nodes = self._nodes.setdefault(module, {})
        before = nodes.get(node)
        if before is None or ORDER.index(sure) < ORDER.index(before.sure):
            nodes[node] = Hot(node, sure, origin)

    def _emit(
        self, module: Module, function: Function | None, top: ast.AST, sure: Sure, origin: str, depth: int
    ) -> None:
        known = _single(module, function)
        for node in _expressions(top, known):
            self._put(module, node, sure, origin)
            if isinstance(node, ast.Call):
                self._follow(module, function, node, sure, depth)

    def _follow(self, module: Module, function: Function | None, call: ast.Call, sure: Sure, depth: int) -> None:
        functions, exact = self.project.resolve(module, call)
        for found in functions:
            if found in self.training.loop_functions or evaluates(found.name) or found is function:
                continue
            if found.name == "__init__" or (found.name == "forward" and not exact):
                continue
            level = sure if exact else lower(sure)
            self.enter(found, level, f"{found.name}(), called in every step", depth + 1)
        if function is not None:
            for arg in call.args:
                inner = module.nested.get(function, {}).get(arg.id) if isinstance(arg, ast.Name) else None
                if inner is not None:
                    self.enter(inner, least(sure, "likely"), f"{inner.name}(), used in every step", depth + 1)


def _counts_epochs(loop: ast.AST) -> bool:
    return isinstance(loop, ast.For) and is_epoch_loop(loop) and "load" not in ast.unparse(loop.iter)


def _steps(function: Function) -> bool:
    """Return whether a function that no loop was found for is one optimizer step: backward and step, or zero_grad."""
    names = {
        n.func.attr for n in ast.walk(function.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    }
    return bool(names & {"backward", "manual_backward"}) and bool(names & {"step", "zero_grad"})


def _is_way_out(statement: ast.If, function: Function | None) -> bool:
    """Return whether a function ends early by what it is called with: `if factor == 1: return x`."""
    test, last = statement.test, statement.body[-1]
    if function is None or not isinstance(last, ast.Return) or not isinstance(test, ast.Compare):
        return False
    return isinstance(test.left, ast.Name) and test.left.id in function.parameters


def _single(module: Module, function: Function | None) -> dict[str, ast.expr]:
    """Return local names that are assigned once, with what they stand for."""
    if function is None:
        return {name: values[0] for name, values in module.constants.items() if len(values) <= 2}
    return {
        name: values[0] for name, values in assignments(function).items() if len(values) == 1 and values[0] is not None
    }


def _expressions(top: ast.AST, known: dict[str, ast.expr]) -> Iterator[ast.AST]:
    """Give a statement's own nodes; branches of a conditional expression only where they run each time."""
    stack = [top]
    while stack:
        node = stack.pop()
        if isinstance(node, FunctionNode | ast.ClassDef | ast.Lambda):
            continue
        yield node
        if isinstance(node, ast.IfExp):
            rare = guard(node.test, known) == "rare"
            stack += [node.test] if rare else [node.test, node.body, node.orelse]
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for value in node.values:
                stack.append(value)
                if guard(value, known) == "rare":
                    break
        else:
            stack.extend(ast.iter_child_nodes(node))


def per_sample(project: Project, training: Training, values: Values) -> Heat:
    """Return what runs for every sample: `__getitem__` of datasets, and `__iter__` of iterable ones."""
    heat = Heat(project, training, values, start=False)
    for module in project.modules:
        for cls in module.class_of.values():
            if project.is_dataset(cls):
                for name in {"__getitem__", "__iter__"} & cls.methods.keys():
                    heat.enter(cls.methods[name], "certain", f"{cls.node.name}.{name}()", 0)
    return heat

"""What an expression stands for: a literal, or a value that can be followed to its only source."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from underfed.audit.module import Class, Function, FunctionNode, Module
from underfed.audit.options import Default, defaults
from underfed.audit.project import Project

_SETTINGS = frozenset(
    [
        "args",
        "opt",
        "opts",
        "options",
        "config",
        "cfg",
        "conf",
        "hparams",
        "flags",
        "FLAGS",
        "params",
        "hp",
        "hps",
        "argument",
        "arguments",
        "parsed",
        "parser_args",
        "hyperparams",
        "settings",
        "train_args",
        "training_args",
        "data_args",
        "model_args",
        "training_config",
        "train_config",
        "C",
        "c",
    ]
)
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_DEEP = 8


@dataclass(frozen=True)
class Value:
    """A value. `known` is False where the source does not say; `via` tells where a value that is not literal is from.

    A default can be overridden by whoever starts the program, so a value with `is_default` is never certain.
    """

    known: bool
    value: Any = None
    via: str = ""
    is_default: bool = False

    def __bool__(self) -> bool:
        """Refuse: an unknown value is neither true nor false."""
        raise TypeError("ask for .known and .value")


UNKNOWN = Value(False)


class Values:
    """Follows expressions through a project."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def options(self) -> dict[str, list[Default]]:
        """Return all defaults of options and fields by name."""
        return defaults(self.project)

    def of(self, module: Module, node: ast.expr | None, depth: int = 0) -> Value:
        """Return what an expression stands for."""
        if node is None or depth > _DEEP:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return Value(True, node.value)
        if isinstance(node, ast.Name):
            return self._name(module, node, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, node, depth + 1)
        if isinstance(node, ast.Subscript):
            return self._item(module, node.value, node.slice, depth + 1)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return self._arithmetic(module, node, depth + 1)
        if isinstance(node, ast.UnaryOp):
            inner = self.of(module, node.operand, depth + 1)
            if inner.known and isinstance(inner.value, int | float):
                value = -inner.value if isinstance(node.op, ast.USub) else not inner.value
                if isinstance(node.op, ast.USub | ast.Not):
                    return Value(True, value, inner.via, inner.is_default)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._comparison(module, node, depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "bool" and node.args:
            inner = self.of(module, node.args[0], depth + 1)
            return Value(True, bool(inner.value), inner.via, inner.is_default) if inner.known else UNKNOWN
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            return self._item(module, node.func.value, node.args[0], depth + 1)
        return UNKNOWN

    def _comparison(self, module: Module, node: ast.Compare, depth: int) -> Value:
        left, right = self.of(module, node.left, depth), self.of(module, node.comparators[0], depth)
        if not left.known or not right.known or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return UNKNOWN
        same = bool(left.value == right.value)
        value = same if isinstance(node.ops[0], ast.Eq) else not same
        return Value(True, value, left.via or right.via, left.is_default or right.is_default)

    def _arithmetic(self, module: Module, node: ast.BinOp, depth: int) -> Value:
        left, right = self.of(module, node.left, depth), self.of(module, node.right, depth)
        numbers = (int, float)
        if not (left.known and right.known and isinstance(left.value, numbers) and isinstance(right.value, numbers)):
            return UNKNOWN
        try:
            value = _OPERATORS[type(node.op)](left.value, right.value)
        except (ArithmeticError, ValueError):
            return UNKNOWN
        return Value(True, value, left.via or right.via, left.is_default or right.is_default)

    def _name(self, module: Module, node: ast.Name, depth: int) -> Value:
        function = module.function_of(node)
        while function is not None:
            stored = assignments(function).get(node.id, [])
            if node.id in function.parameters:
                return self._parameter(function, node.id, depth) if not stored else UNKNOWN
            if stored:
                return self.of(module, stored[0], depth) if len(stored) == 1 and stored[0] is not None else UNKNOWN
            function = function.outer
        return self._global(module, node.id, depth)

    def _global(self, module: Module, name: str, depth: int) -> Value:
        values = module.constants.get(name)
        if values is not None:
            found = self.of(module, values[0], depth) if len(values) == 1 else UNKNOWN
            return (
                Value(True, found.value, found.via or f"{name} ({module.path})", found.is_default)
                if found.known
                else found
            )
        dotted = module.imports.get(name)
        elsewhere = self.project.find(dotted) if dotted else None
        if isinstance(elsewhere, tuple):
            return self._global(elsewhere[0], elsewhere[1], depth + 1) if depth < _DEEP else UNKNOWN
        return UNKNOWN

    def _parameter(self, function: Function, name: str, depth: int) -> Value:
        """Follow a parameter to its callers; its default counts only where no caller gives another value."""
        default = function.parameters[name]
        wanted = function.name if function.name != "__init__" or function.cls is None else function.cls.node.name
        seen: list[Value] = []
        for module, call in self.project.calls_by_name.get(wanted, []):
            given = argument(call, name, list(function.parameters), is_method=function.cls is not None)
            if given is _SPREAD:
                return UNKNOWN
            seen.append(self.of(module, given if given is not None else default, depth + 1))
        from_click = self._option(name) if function.node.decorator_list else None
        if from_click is not None and from_click.known:
            return from_click
        if not seen:
            value = default
            if isinstance(value, ast.Call) and value.args and ast.unparse(value.func).endswith("Option"):
                value = value.args[0]
            found = self.of(function.module, value, depth + 1)
            where = f"default of {function.name}({name}) ({function.module.path}:{function.node.lineno})"
            return Value(True, found.value, found.via or where, True) if found.known else UNKNOWN
        first = seen[0]
        if all(one.known and one.value == first.value and type(one.value) is type(first.value) for one in seen):
            return first
        return UNKNOWN

    def _attribute(self, module: Module, node: ast.Attribute, depth: int) -> Value:
        root: ast.AST = node
        path: list[str] = []
        while isinstance(root, ast.Attribute):
            path.append(root.attr)
            root = root.value
        if not isinstance(root, ast.Name):
            return UNKNOWN
        path.reverse()
        if root.id == "self" and len(path) == 1:
            return self._own(module, node, depth)
        if root.id == "self":
            path = path[1:] if path[0] in _SETTINGS else path
        elif root.id in module.imports or (root.id not in _SETTINGS and not self._is_parsed(module, root.id)):
            dotted = module.qualified(node)
            found = self.project.find(dotted) if dotted else None
            return self._global(found[0], found[1], depth) if isinstance(found, tuple) else UNKNOWN
        from_code = self._option(path[-1])
        if from_code is not None:
            return from_code
        return self._setting(path)

    def _is_parsed(self, module: Module, name: str) -> bool:
        return any("parse_args" in ast.unparse(value) for value in module.constants.get(name, []))

    def _option(self, name: str) -> Value | None:
        """Return an option's default; several options of one name must agree."""
        found = self.options.get(name)
        if not found:
            return None
        values = [self.of(one.module, one.value, _DEEP - 2) for one in found]
        first = values[0]
        if all(v.known and v.value == first.value and v.value is not None for v in values):
            return Value(True, first.value, found[0].where, True)
        return UNKNOWN

    def _setting(self, path: list[str]) -> Value:
        """Return the value of a configuration file's key that ends like an attribute path, if it is the only one."""
        tail = ".".join(path)
        found = [
            v
            for key, values in self.project.settings.items()
            if key == tail or key.endswith("." + tail)
            for v in values
        ]
        if found and all(value == found[0][1] for _, value in found):
            return Value(True, found[0][1], f"{tail} in {found[0][0]}", True)
        return UNKNOWN

    def _own(self, module: Module, node: ast.Attribute, depth: int) -> Value:
        function = module.function_of(node)
        while function is not None and function.cls is None:
            function = function.outer
        if function is None or function.cls is None:
            return UNKNOWN
        stored = own_values(function.cls).get(node.attr, [])
        return self.of(module, stored[0], depth) if len(stored) == 1 else UNKNOWN

    def _item(self, module: Module, container: ast.expr, key: ast.expr, depth: int) -> Value:
        wanted = self.of(module, key, depth)
        if not wanted.known:
            return UNKNOWN
        table = self.mapping(module, container, depth)
        if table is not None and wanted.value in table:
            return self.of(module, table[wanted.value], depth)
        root = container.id if isinstance(container, ast.Name) else ""
        if table is None and isinstance(wanted.value, str) and root in _SETTINGS:
            return self._setting([wanted.value])
        return UNKNOWN

    def mapping(self, module: Module, node: ast.expr | None, depth: int = 0) -> dict[Any, ast.expr] | None:
        """Return the entries of a dictionary that is written out, or None where not all of them are known."""
        if depth > _DEEP or node is None:
            return None
        if isinstance(node, ast.Dict):
            table: dict[Any, ast.expr] = {}
            for key, value in zip(node.keys, node.values, strict=True):
                if key is None:
                    inner = self.mapping(module, value, depth + 1)
                    if inner is None:
                        return None
                    table.update(inner)
                elif isinstance(key, ast.Constant):
                    table[key.value] = value
                else:
                    return None
            return table
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            return {k.arg: k.value for k in node.keywords} if all(k.arg for k in node.keywords) else None
        if isinstance(node, ast.Name):
            return self._named_mapping(module, node, depth + 1)
        return None

    def _named_mapping(self, module: Module, node: ast.Name, depth: int) -> dict[Any, ast.expr] | None:
        function = module.function_of(node)
        scope: ast.AST = function.node if function else module.tree
        stored = assignments(function).get(node.id, []) if function else list(module.constants.get(node.id, []))
        if function is not None and not stored and node.id not in function.parameters:
            stored, scope = list(module.constants.get(node.id, [])), module.tree
        if len(stored) != 1 or stored[0] is None:
            return None
        table = self.mapping(module, stored[0], depth)
        if table is None:
            return None
        table = dict(table)
        for inner in ast.walk(scope):
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "update":
                if ast.unparse(inner.func.value) == node.id:
                    runs = self._runs(module, inner)
                    if runs is None or (runs and (inner.args or not all(k.arg for k in inner.keywords))):
                        return None
                    table.update({k.arg: k.value for k in inner.keywords} if runs else {})
            elif isinstance(inner, ast.Assign) and isinstance(inner.targets[0], ast.Subscript):
                if ast.unparse(inner.targets[0].value) == node.id:
                    return None
        return table

    def _runs(self, module: Module, node: ast.AST) -> bool | None:
        """Return whether a statement runs, by the conditions around it; None where that is not known."""
        inner = node
        for around in module.up(node):
            if isinstance(around, ast.If):
                value = self.of(module, around.test)
                if not value.known or value.is_default:
                    return None
                if bool(value.value) != (inner in around.body):
                    return False
            inner = around
        return True


_SPREAD = ast.Constant("*")


def argument(call: ast.Call, name: str, order: list[str], *, is_method: bool = False) -> ast.expr | None:
    """Return what a call gives for a parameter: None where nothing, a marker where it may be in * or **."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = order[1:] if is_method and order[:1] in (["self"], ["cls"]) else order
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return _SPREAD
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return None


def assignments(function: Function) -> dict[str, list[ast.expr | None]]:
    """Return what each local name is assigned in a function; None for what is not a plain assignment."""
    cached = function.__dict__.get("_assignments")
    if cached is not None:
        return cached  # type: ignore[no-any-return]
    found: dict[str, list[ast.expr | None]] = {}
    for node in inside(function.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
                else:
                    for inner in ast.walk(target):
                        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                            found.setdefault(inner.id, []).append(None)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            if isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.setdefault(node.target.id, []).append(None)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.withitem):
            bound = node.optional_vars if isinstance(node, ast.withitem) else node.target
            for inner in ast.walk(bound) if bound is not None else ():
                if isinstance(inner, ast.Name):
                    found.setdefault(inner.id, []).append(None)
    function.__dict__["_assignments"] = found
    return found


def own_values(cls: Class) -> dict[str, list[ast.expr]]:
    """Return what a class assigns to its attributes, on itself and in its methods."""
    cached = cls.__dict__.get("_own_values")
    if cached is not None:
        return cached  # type: ignore[no-any-return]
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(cls.node):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if value is not None and isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                if target.value.id == "self":
                    found.setdefault(target.attr, []).append(value)
            elif value is not None and isinstance(target, ast.Name) and node in cls.node.body:
                found.setdefault(target.id, []).append(value)
    cls.__dict__["_own_values"] = found
    return found


def inside(node: ast.AST) -> list[ast.AST]:
    """Return the nodes of a function's own body, in source order, without those of functions and classes in it."""
    found: list[ast.AST] = []
    stack: list[ast.AST] = list(reversed(list(ast.iter_child_nodes(node))))
    while stack:
        at = stack.pop()
        found.append(at)
        if isinstance(at, FunctionNode | ast.ClassDef | ast.Lambda):
            continue
        stack.extend(reversed(list(ast.iter_child_nodes(at))))
    return found

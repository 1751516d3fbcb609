"""What an expression stands for: a literal, or a value that can be followed to its only source."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from underfed.audit.module import Function, Module
from underfed.audit.options import Default, defaults
from underfed.audit.project import Project
from underfed.audit.records import Records
from underfed.audit.scopes import SPREAD, argument, assignments, bindings, own_values
from underfed.audit.tables import table

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
#: A question that leads to more calls than this is given up: each caller may ask for its own parameters in turn.
_MOST_CALLERS = 1_000


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
        self._callers = 0

    @cached_property
    def records(self) -> Records:
        """Return what is known of configuration classes."""
        return Records(self.project)

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
        if depth == 0:
            self._callers = 0
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
            again = len(bindings(module, None).get(name, [])) > 1 or name in module.globals
            found = self.of(module, values[0], depth) if len(values) == 1 and not again else UNKNOWN
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
        default, order = function.parameters[name], list(function.parameters)
        wanted = function.name if function.name != "__init__" or function.cls is None else function.cls.node.name
        from_click = self._option(name) if function.node.decorator_list else None
        first: Value | None = None
        for module, call in self.project.calls_by_name.get(wanted, []):
            self._callers += 1
            given = argument(call, name, order, is_method=function.cls is not None)
            if given is SPREAD or self._callers > _MOST_CALLERS:
                return UNKNOWN
            one = self.of(module, given if given is not None else default, depth + 1)
            first = one if first is None else first
            if not one.known or one.value != first.value or type(one.value) is not type(first.value):
                first = UNKNOWN
                break
        if from_click is not None and from_click.known:
            return from_click
        if first is None:
            value = default
            if isinstance(value, ast.Call) and value.args and ast.unparse(value.func).endswith("Option"):
                value = value.args[0]
            found = self.of(function.module, value, depth + 1)
            where = f"default of {function.name}({name}) ({function.module.path}:{function.node.lineno})"
            return Value(True, found.value, found.via or where, True) if found.known else UNKNOWN
        return first

    def _attribute(self, module: Module, node: ast.Attribute | ast.Subscript, depth: int) -> Value:
        root, path = _steps(node)
        if not isinstance(root, ast.Name) or not path:
            return UNKNOWN
        if root.id == "self" and len(path) == 1 and isinstance(node, ast.Attribute):
            own = self._own(module, node, depth)
            if own.known:
                return own
        typed = self._field(module, node, depth)
        if typed is not None:
            return typed
        if root.id == "self":
            path = path[1:] if path[0] in _SETTINGS else path
            if not path:
                return UNKNOWN
        elif root.id in module.imports or (root.id not in _SETTINGS and not self._is_parsed(module, root.id)):
            dotted = module.qualified(node)
            found = self.project.find(dotted) if dotted else None
            return self._global(found[0], found[1], depth) if isinstance(found, tuple) else UNKNOWN
        from_code = self._option(path[-1])
        if from_code is not None:
            return from_code
        return self._setting(path)

    def _field(self, module: Module, node: ast.Attribute | ast.Subscript, depth: int) -> Value | None:
        """Return a field's default where the class of the object is known; None where it is not."""
        found = self.records.find(module, node) if isinstance(node, ast.Attribute) else None
        if found is None:
            return None
        home, default, where = found
        value = self.of(home, default, depth + 1)
        return Value(True, value.value, value.via or where, True) if value.known else UNKNOWN

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
        """Return the value of a configuration file's key that ends like an attribute path."""
        found = self.project.settings.find(path)
        return Value(True, found[1], f"{'.'.join(path)} in {found[0]}", True) if found is not None else UNKNOWN

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
        entries = self.mapping(module, container, depth + 1)
        if entries is not None and wanted.value in entries:
            return self.of(module, entries[wanted.value], depth)
        root, path = _steps(container)
        if entries is None and isinstance(wanted.value, str) and isinstance(root, ast.Name) and root.id in _SETTINGS:
            return self._setting([*path, wanted.value])
        return UNKNOWN

    def mapping(self, module: Module, node: ast.expr | None, depth: int = 0) -> dict[Any, ast.expr] | None:
        """Return the entries of a dictionary that is written out, or None where not all of them are known."""
        if depth == 0:
            self._callers = 0
        return table(self, module, node, depth)


def _steps(node: ast.expr) -> tuple[ast.expr, list[str]]:
    """Return the root of `cfg.data["loaders"][0].workers`, and the keys that lead from it."""
    path: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            path.append(node.attr)
        elif isinstance(node.slice, ast.Constant):
            path.append(str(node.slice.value))
        else:
            return node, []
        node = node.value
    return node, path[::-1]

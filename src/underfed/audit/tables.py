"""Dictionaries that are written out: `{"num_workers": 0}`, `dict(a=1)`, with what is added to them later."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from underfed.audit.module import LOOPS, Function, Module
from underfed.audit.scopes import assignments, bindings, inside, own_values

if TYPE_CHECKING:
    from underfed.audit.values import Values

Table = dict[Any, ast.expr]
_DEEP = 8


def table(values: Values, module: Module, node: ast.expr | None, depth: int = 0) -> Table | None:
    """Return the entries of a dictionary; None where not all of them are known.

    Entries are expressions of `module`: a dictionary of another module counts where its entries are literals.
    """
    if depth > _DEEP or node is None:
        return None
    if isinstance(node, ast.Dict):
        found: Table = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inner = table(values, module, value, depth + 1)
                if inner is None:
                    return None
                found.update(inner)
            elif isinstance(key, ast.Constant):
                found[key.value] = value
            else:
                return None
        return found
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return _call(values, module, node, depth + 1)
    if isinstance(node, ast.IfExp):
        test = values.of(module, node.test, depth + 1)
        if test.known and not test.is_default:
            return table(values, module, node.body if test.value else node.orelse, depth + 1)
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        left, right = table(values, module, node.left, depth + 1), table(values, module, node.right, depth + 1)
        return None if left is None or right is None else {**left, **right}
    if isinstance(node, ast.Name):
        return _named(values, module, node, depth + 1)
    if isinstance(node, ast.Attribute):
        return _attribute(values, module, node, depth + 1)
    return None


def _call(values: Values, module: Module, node: ast.Call, depth: int) -> Table | None:
    found: Table = {}
    for part in [*node.args, *(k.value for k in node.keywords if k.arg is None)]:
        inner = table(values, module, part, depth)
        if inner is None:
            return None
        found.update(inner)
    found.update({k.arg: k.value for k in node.keywords if k.arg is not None})
    return found


def _named(values: Values, module: Module, node: ast.Name, depth: int) -> Table | None:
    function = module.function_of(node)
    scope: ast.AST = module.tree
    stored: list[ast.expr | None] = []
    while function is not None:
        stored = assignments(function).get(node.id, [])
        if not stored and function.node.args.kwarg is not None and function.node.args.kwarg.arg == node.id:
            return _extra(values, function, depth)
        if stored or node.id in function.parameters:
            scope = function.node
            break
        function = function.outer
    else:
        stored = list(module.constants.get(node.id, []))
        if not stored:
            return _elsewhere(values, module.imports.get(node.id), depth)
        if len(bindings(module, None).get(node.id, [])) > 1 or node.id in module.globals:
            return None
    if len(stored) != 1 or stored[0] is None:
        return None
    found = table(values, module, stored[0], depth)
    home = function if scope is not module.tree else None
    return None if found is None else _changed(values, module, scope, node, home, dict(found), depth)


def _attribute(values: Values, module: Module, node: ast.Attribute, depth: int) -> Table | None:
    if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        return _elsewhere(values, module.qualified(node), depth)
    function = module.function_of(node)
    while function is not None and function.cls is None:
        function = function.outer
    if function is None or function.cls is None:
        return None
    stored = own_values(function.cls).get(node.attr, [])
    found = table(values, module, stored[0], depth) if len(stored) == 1 else None
    home = module.function_of(stored[0]) if stored else None
    return None if found is None else _changed(values, module, function.cls.node, node, home, dict(found), depth)


def _elsewhere(values: Values, dotted: str | None, depth: int) -> Table | None:
    found = values.project.find(dotted) if dotted else None
    if not isinstance(found, tuple):
        return None
    stored = found[0].constants.get(found[1], [])
    inner = table(values, found[0], stored[0], depth) if len(stored) == 1 else None
    return inner if inner is not None and all(isinstance(v, ast.Constant) for v in inner.values()) else None


def _extra(values: Values, function: Function, depth: int) -> Table | None:
    """Return what the callers of a function put into its `**kwargs`, if all put the same there."""
    name = function.cls.node.name if function.name == "__init__" and function.cls is not None else function.name
    calls = values.project.calls_by_name.get(name, [])
    seen: list[Table] = []
    for module, call in calls:
        if any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        found: Table = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                inner = table(values, module, keyword.value, depth + 1)
                if inner is None:
                    return None
                found.update(inner)
            elif keyword.arg not in function.parameters:
                found[keyword.arg] = keyword.value
        if module is not function.module and not all(isinstance(v, ast.Constant) for v in found.values()):
            return None
        seen.append(found)
    if not seen:
        return None
    texts = [{key: ast.dump(value) for key, value in one.items()} for one in seen]
    return seen[0] if all(text == texts[0] for text in texts) else None


def _changed(
    values: Values, module: Module, scope: ast.AST, use: ast.expr, home: Function | None, found: Table, depth: int
) -> Table | None:
    """Return a table with what is put into it between its making, in the function `home`, and its use.

    None where that depends on what is not known: a condition, another function, whatever a function of the project does
    with it.
    """
    nodes = [node for node in ast.walk(scope) if isinstance(node, _MAY_TOUCH) and _touches(values, module, node, use)]
    for node in sorted(nodes, key=lambda one: (one.lineno, one.col_offset)):
        where = module.function_of(node)
        if where is not home:
            if isinstance(use, ast.Name) and _is_another(where, home, use.id):
                continue
            return None
        if module.function_of(use) is home and node.lineno > use.lineno:
            if any(isinstance(around, LOOPS) for around in module.up(use)):
                return None  # it comes round again
            continue
        runs, change = _runs(values, module, node, depth), _change(values, module, node, depth)
        if runs is None or (runs and change is None):
            return None
        if runs and change is not None:
            found.update(change)
    return found


_MAY_TOUCH = (ast.Subscript, ast.AugAssign, ast.Call)


def _touches(values: Values, module: Module, node: ast.AST, use: ast.expr) -> bool:
    """Return whether a node may change what a table holds."""
    if isinstance(node, ast.Subscript):
        return not isinstance(node.ctx, ast.Load) and _same(node.value, use)
    if isinstance(node, ast.AugAssign):
        return _same(node.target, use)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and _same(node.func.value, use):
        return node.func.attr in {"update", "pop", "setdefault", "clear", "popitem"}
    given = [*node.args, *(k.value for k in node.keywords if k.arg is not None)]
    return any(_same(one, use) for one in given) and bool(values.project.resolve(module, node)[0])


def _same(node: ast.AST, use: ast.expr) -> bool:
    """Return whether a node is written as a table's use is: a name, or `self.name`."""
    if isinstance(use, ast.Name):
        return isinstance(node, ast.Name) and node.id == use.id
    return isinstance(node, ast.Attribute) and ast.unparse(node) == ast.unparse(use)


def _change(values: Values, module: Module, node: ast.AST, depth: int) -> Table | None:
    """Return what a node puts into a table; None for what is not a plain addition."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        return _call(values, module, node, depth + 1)
    line = module.parents.get(node)
    if isinstance(node, ast.Subscript) and isinstance(line, ast.Assign) and node in line.targets:
        return {node.slice.value: line.value} if isinstance(node.slice, ast.Constant) else None
    return None


def _is_another(where: Function | None, home: Function | None, name: str) -> bool:
    """Return whether a function has a variable of its own by this name."""
    while where is not None and where is not home:
        shared = any(isinstance(node, ast.Global | ast.Nonlocal) and name in node.names for node in inside(where.node))
        if not shared and (name in where.parameters or name in assignments(where)):
            return True
        where = where.outer
    return False


def _runs(values: Values, module: Module, node: ast.AST, depth: int) -> bool | None:
    """Return whether a statement runs, by the conditions around it; None where that is not known."""
    inner = node
    for around in module.up(node):
        if isinstance(around, ast.If):
            value = values.of(module, around.test, depth + 1)
            if not value.known or value.is_default:
                return None
            if bool(value.value) != (inner in around.body):
                return False
        elif isinstance(around, ast.ExceptHandler | ast.match_case):
            return None
        inner = around
    return True

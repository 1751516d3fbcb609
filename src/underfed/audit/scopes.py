"""What names are bound to in a function, a class or a call."""

from __future__ import annotations

import ast

from underfed.audit.module import Class, Function, FunctionNode, Module

#: Stands for an argument that may come from * or **.
SPREAD = ast.Constant("*")


def argument(call: ast.Call, name: str, order: list[str], *, is_method: bool = False) -> ast.expr | None:
    """Return what a call gives for a parameter: None where nothing, a marker where it may be in * or **."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = order[1:] if is_method and order[:1] in (["self"], ["cls"]) else order
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(k.arg is None for k in call.keywords):
        return SPREAD
    if name in names and names.index(name) < len(call.args):
        return call.args[names.index(name)]
    return None


def assignments(function: Function) -> dict[str, list[ast.expr | None]]:
    """Return what each local name is assigned in a function; None for what is not a plain assignment."""
    cached = function.__dict__.get("_assignments")
    if cached is None:
        cached = function.__dict__["_assignments"] = _bound_in(function.node)
    return cached


def bindings(module: Module, function: Function | None) -> dict[str, list[ast.expr | None]]:
    """Return the same for a function or, without one, for a module's own level, loops included."""
    if function is not None:
        return assignments(function)
    cached = module.__dict__.get("_bindings")
    if cached is None:
        cached = module.__dict__["_bindings"] = _bound_in(module.tree)
    return cached


def _bound_in(scope: ast.AST) -> dict[str, list[ast.expr | None]]:
    found: dict[str, list[ast.expr | None]] = {}
    for node in inside(scope):
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

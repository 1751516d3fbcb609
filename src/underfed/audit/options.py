"""Defaults of command-line options and configuration fields, by name."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

from underfed.audit.module import Module
from underfed.audit.project import Project


@dataclass(frozen=True)
class Default:
    """The default of a setting: its expression (None where it has none), and where it stands."""

    value: ast.expr | None
    where: str
    module: Module


def defaults(project: Project) -> dict[str, list[Default]]:
    """Return the defaults of argparse, click and absl options and of dataclass fields."""
    found: dict[str, list[Default]] = defaultdict(list)
    for module in project.modules:
        for call in module.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name == "add_argument":
                _argparse(module, call, found)
            elif name in {"option", "Option"} and "click" in (module.called(call) or "click"):
                _click(module, call, found)
            elif name.startswith("DEFINE_") and len(call.args) >= 2:
                option = call.args[0]
                if isinstance(option, ast.Constant) and isinstance(option.value, str):
                    where = f"default of --{option.value} ({_place(module, call)})"
                    found[option.value].append(Default(call.args[1], where, module))
        for cls in module.of(ast.ClassDef):
            if _holds_fields(module, cls):
                _fields(module, cls, found)
    return found


def _place(module: Module, node: ast.AST) -> str:
    return f"{module.path}:{node.lineno}"  # type: ignore[attr-defined]


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _argparse(module: Module, call: ast.Call, found: dict[str, list[Default]]) -> None:
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if not flags:
        return
    long = next((f for f in flags if f.startswith("--")), flags[0])
    dest = _keyword(call, "dest")
    name = dest.value if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    action = _keyword(call, "action")
    value = _keyword(call, "default")
    if value is None and isinstance(action, ast.Constant) and action.value in {"store_true", "store_false"}:
        value = ast.Constant(action.value == "store_false")
    found[str(name)].append(Default(value, f"default of {long} ({_place(module, call)})", module))


def _click(module: Module, call: ast.Call, found: dict[str, list[Default]]) -> None:
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = next((f for f in flags if f.startswith("--")), None)
    if long is None:
        return
    name = next((f for f in flags if not f.startswith("-")), long.partition("/")[0].lstrip("-").replace("-", "_"))
    value = _keyword(call, "default")
    if value is None and isinstance(flag := _keyword(call, "is_flag"), ast.Constant) and flag.value:
        value = ast.Constant(False)
    found[name].append(Default(value, f"default of {long} ({_place(module, call)})", module))


def _holds_fields(module: Module, cls: ast.ClassDef) -> bool:
    marks = [module.qualified(d.func if isinstance(d, ast.Call) else d) or "" for d in cls.decorator_list]
    if any(mark.rpartition(".")[2] in {"dataclass", "define", "frozen", "configclass"} for mark in marks):
        return True
    bases = [(module.qualified(base) or "").rpartition(".")[2] for base in cls.bases]
    return any(
        base in {"BaseModel", "BaseSettings", "NamedTuple", "Struct"} or base.endswith("Arguments") for base in bases
    )


def _fields(module: Module, cls: ast.ClassDef, found: dict[str, list[Default]]) -> None:
    for line in cls.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.value is not None:
            value: ast.expr | None = line.value
            if isinstance(value, ast.Call):
                value = _keyword(value, "default") if "ield" in ast.unparse(value.func) else None
            where = f"default of {cls.name}.{line.target.id} ({_place(module, line)})"
            found[line.target.id].append(Default(value, where, module))

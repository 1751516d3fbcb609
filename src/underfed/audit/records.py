"""Configuration objects: which class a name holds, and the default of a field along its bases."""

from __future__ import annotations

import ast

from underfed.audit.module import Class, Function, Module
from underfed.audit.project import Project
from underfed.audit.scopes import assignments, own_values

_DEEP = 6
#: Calls that make an object of the class that they are given.
_MAKERS = frozenset({"cli", "parse", "structured", "parse_args", "from_args", "instantiate"})
#: Defaults of transformers.TrainingArguments.
HF_DEFAULTS: dict[str, object] = {
    "dataloader_num_workers": 0,
    "dataloader_pin_memory": True,
    "dataloader_persistent_workers": False,
    "dataloader_prefetch_factor": None,
    "dataloader_drop_last": False,
    "bf16": False,
    "fp16": False,
    "tf32": None,
    "torch_compile": False,
    "gradient_checkpointing": False,
    "logging_steps": 500,
    "ddp_find_unused_parameters": None,
}
_HF = "TrainingArguments"


class Records:
    """Follows attribute paths through classes of fields: `cfg.data.workers`."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def find(self, module: Module, node: ast.Attribute) -> tuple[Module, ast.expr | None, str] | None:
        """Return the module, the expression and the place of the default of a field.

        The expression is None for a field without one; the result is None where the class or field is not known.
        """
        cls = self.holds(module, node.value)
        return self.field(cls, node.attr) if cls is not None else None

    def field(self, cls: Class | str, name: str) -> tuple[Module, ast.expr | None, str] | None:
        """Return the default of a field, looked for along the bases."""
        known, outside = self.project.ancestors(cls) if isinstance(cls, Class) else ([], [cls])
        for one in known:
            for line in one.node.body:
                target, value = _bound(line)
                if target == name:
                    where = f"default of {one.node.name}.{name} ({one.module.path}:{line.lineno})"
                    return one.module, _default(value), where
        if name in HF_DEFAULTS and any(base.endswith(_HF) for base in outside):
            module = known[0].module if known else self.project.modules[0]
            return module, ast.Constant(HF_DEFAULTS[name]), f"default of {_HF}.{name}"  # type: ignore[arg-type]
        return None

    def holds(self, module: Module, node: ast.expr | None, depth: int = 0) -> Class | str | None:
        """Return the class of what an expression holds: of the project, or the name of one outside."""
        if node is None or depth > _DEEP:
            return None
        if isinstance(node, ast.Name):
            return self._name(module, node, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(module, node, depth + 1)
        if isinstance(node, ast.Call):
            return self._made(module, node)
        return None

    def _name(self, module: Module, node: ast.Name, depth: int) -> Class | str | None:
        function = module.function_of(node)
        while function is not None:
            stored = assignments(function).get(node.id, [])
            if node.id in function.parameters and not stored:
                return self._annotated(module, _annotation(function, node.id))
            if stored:
                if len(stored) == 1 and stored[0] is not None:
                    return self.holds(module, stored[0], depth)
                return self._unpacked(module, function.node, node.id) if len(stored) == 1 else None
            function = function.outer
        values = module.constants.get(node.id, [])
        if len(values) == 1:
            return self.holds(module, values[0], depth)
        return None if values else self._unpacked(module, module.tree, node.id)

    def _attribute(self, module: Module, node: ast.Attribute, depth: int) -> Class | str | None:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            function = module.function_of(node)
            while function is not None and function.cls is None:
                function = function.outer
            if function is None or function.cls is None:
                return None
            stored = own_values(function.cls).get(node.attr, [])
            return self.holds(module, stored[0], depth) if len(stored) == 1 else None
        outer = self.holds(module, node.value, depth)
        return self._field_class(outer, node.attr) if outer is not None else None

    def _made(self, module: Module, call: ast.Call) -> Class | str | None:
        found = self._named(module, call.func)
        if found is not None:
            return None if call.args or call.keywords else found  # its fields may be given there
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _MAKERS or name.startswith("parse_"):
            given = (
                call.args[0] if call.args else next((k.value for k in call.keywords if "class" in (k.arg or "")), None)
            )
            if given is not None:
                return self._named(module, given)
            kinds = self._parsed(module, call)
            return kinds[0] if len(kinds) == 1 else None
        return None

    def _parsed(self, module: Module, call: ast.Call) -> list[Class | str | None]:
        """Return the classes of `HfArgumentParser((A, B))` where the call is a parse of it."""
        node: ast.expr | None = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(node, ast.Name):
            function = module.function_of(call)
            stored = (assignments(function).get(node.id) if function else None) or module.constants.get(node.id, [])
            node = stored[0] if len(stored) == 1 else None
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("Parser") or not node.args:
            return []
        first = node.args[0]
        parts = first.elts if isinstance(first, ast.Tuple | ast.List) else [first]
        return [self._named(module, part) for part in parts]

    def _unpacked(self, module: Module, scope: ast.AST, name: str) -> Class | str | None:
        """Return the class of a name in `a, b = parser.parse_args_into_dataclasses()`."""
        for node in ast.walk(scope):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
                continue
            names = [getattr(part, "id", None) for part in node.targets[0].elts]
            if name in names and isinstance(node.value, ast.Call):
                kinds = self._parsed(module, node.value)
                at = names.index(name)
                return kinds[at] if at < len(kinds) else None
        return None

    def _named(self, module: Module, node: ast.expr) -> Class | str | None:
        dotted = module.qualified(node)
        found = self.project.find(dotted) if dotted else None
        if isinstance(found, Class):
            return found
        return dotted if dotted and dotted.endswith(_HF) else None

    def _annotated(self, module: Module, node: ast.expr | None) -> Class | str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return None
        if isinstance(node, ast.Subscript):  # Optional[Config]
            return self._annotated(module, node.slice)
        if isinstance(node, ast.BinOp):  # Config | None
            return self._annotated(module, node.left)
        return self._named(module, node) if isinstance(node, ast.Name | ast.Attribute) else None

    def _field_class(self, cls: Class | str, name: str) -> Class | str | None:
        for one in self.project.ancestors(cls)[0] if isinstance(cls, Class) else ():
            for line in one.node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id == name:
                    return self._annotated(one.module, line.annotation)
        return None


def _bound(line: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
        return line.target.id, line.value
    if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
        return line.targets[0].id, line.value
    return None, None


def _default(value: ast.expr | None) -> ast.expr | None:
    """Return what a field starts as: `field(default=0)`, `Field(0)`, `field(default_factory=lambda: 0)`."""
    if not isinstance(value, ast.Call) or not ast.unparse(value.func).lower().endswith("field"):
        return value
    for keyword in value.keywords:
        if keyword.arg == "default":
            return keyword.value
        if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
            return keyword.value.body
    first = value.args[0] if value.args else None
    return None if isinstance(first, ast.Constant) and first.value is ... else first


def _annotation(function: Function, name: str) -> ast.expr | None:
    args = function.node.args
    return next((a.annotation for a in [*args.posonlyargs, *args.args, *args.kwonlyargs] if a.arg == name), None)

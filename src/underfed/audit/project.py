"""All modules that are read together, and what can be followed across them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cached_property

from underfed.audit.module import Class, Function, Module
from underfed.audit.settings import Settings

#: Names of methods that many libraries have: a call of one says nothing about a class of the project.
_COMMON = frozenset(
    name for kind in (list, dict, set, str, bytes, tuple, int, float) for name in dir(kind) if not name.startswith("__")
) | frozenset(
    [
        "step",
        "backward",
        "forward",
        "train",
        "eval",
        "zero_grad",
        "log",
        "to",
        "cpu",
        "cuda",
        "save",
        "load",
        "add",
        "update",
        "get",
        "put",
        "write",
        "read",
        "close",
        "item",
        "numpy",
        "detach",
        "mean",
        "sum",
        "clip",
        "state_dict",
        "load_state_dict",
        "parameters",
        "named_parameters",
        "reset",
        "append",
        "run",
        "start",
        "stop",
        "call",
        "apply",
        "size",
        "view",
        "reshape",
        "unwrap",
        "gather",
        "print",
        "info",
        "warning",
        "debug",
        "error",
        "compute",
    ]
)

DATASETS = re.compile(r"(^|\.)(\w*Dataset|IterDataPipe|MapDataPipe|ImageFolder|DatasetFolder)$")
LIGHTNING = re.compile(
    r"(^|\.)(pl|lightning|pytorch_lightning|L)(\.pytorch)?\.(core\.)?(\w+\.)?LightningModule$|\.LightningModule$"
)
_GPU = re.compile(
    r"\bcuda\b|\bdevice\b|\bDEVICE\b|Accelerator\b|\bFabric\b|lightning|deepspeed|TrainingArguments|\bDEV\b"
)


class Project:
    """Modules by dotted name, and by every shorter name that ends the same way."""

    def __init__(self, modules: list[Module], settings: Settings | None = None) -> None:
        self.modules = modules
        self.settings = settings or Settings()
        self._mentions: dict[str, bool] = {}
        self._by_suffix: dict[str, list[Module]] = defaultdict(list)
        for module in modules:
            parts = module.name.split(".")
            for at in range(len(parts)):
                self._by_suffix[".".join(parts[at:])].append(module)

    @cached_property
    def uses_gpu(self) -> bool:
        """Return whether anything in the project speaks of a GPU."""
        return any(_GPU.search(module.source) for module in self.modules)

    def speaks_of_gpu(self, module: Module) -> bool:
        """Return whether a GPU is spoken of where a module is used: in itself, or anywhere if others import it."""
        return bool(_GPU.search(module.source)) or (module in self.imported and self.uses_gpu)

    def mentions(self, pattern: str) -> bool:
        """Return whether any module's source holds a regular expression."""
        if pattern not in self._mentions:
            wanted = re.compile(pattern)
            self._mentions[pattern] = any(wanted.search(module.source) for module in self.modules)
        return self._mentions[pattern]

    @cached_property
    def imported(self) -> set[Module]:
        """Return the modules that another module of the project imports."""
        found = set()
        for module in self.modules:
            for dotted in [*module.imports.values(), *module.stars]:
                for name in (dotted, dotted.rpartition(".")[0]):
                    target = self.module(name)
                    if target is not None and target is not module:
                        found.add(target)
        return found

    @cached_property
    def methods(self) -> dict[str, list[Function]]:
        """Return all methods by name."""
        found: dict[str, list[Function]] = defaultdict(list)
        for module in self.modules:
            for cls in module.class_of.values():
                for name, method in cls.methods.items():
                    found[name].append(method)
        return found

    @cached_property
    def calls_by_name(self) -> dict[str, list[tuple[Module, ast.Call]]]:
        """Return all calls by the last part of what they call."""
        found: dict[str, list[tuple[Module, ast.Call]]] = defaultdict(list)
        for module in self.modules:
            for call in module.calls:
                name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
                if name:
                    found[name].append((module, call))
        return found

    def module(self, dotted: str) -> Module | None:
        """Return the one module of a dotted name, or None."""
        found = self._by_suffix.get(dotted, [])
        named = found if len(found) == 1 else [module for module in found if module.name == dotted]
        return named[0] if len(named) == 1 else None

    def find(self, dotted: str, depth: int = 0) -> Function | Class | tuple[Module, str] | None:
        """Return what a qualified name stands for in the project: function, class or (module, constant)."""
        head, _, name = dotted.rpartition(".")
        if not head or depth > 5:
            return None
        module = self.module(head)
        if module is None:
            return None
        if name in module.functions:
            return module.functions[name]
        if name in module.classes:
            return module.classes[name]
        if name in module.constants:
            return module, name
        onward = module.imports.get(name)
        return self.find(onward, depth + 1) if onward and onward != dotted else None

    def ancestors(self, cls: Class) -> tuple[list[Class], list[str]]:
        """Return a class with its bases in the project, and the names of its bases outside of it."""
        known: list[Class] = []
        outside: list[str] = []
        queue = [cls]
        while queue and len(known) < 50:
            one = queue.pop(0)
            if one in known:
                continue
            known.append(one)
            for base in one.bases:
                found = self.find(base)
                if isinstance(found, Class):
                    queue.append(found)
                else:
                    outside.append(base)
        return known, outside

    def is_kind(self, cls: Class, pattern: re.Pattern[str]) -> bool:
        """Return whether a base outside of the project matches."""
        return any(pattern.search(base) for base in self.ancestors(cls)[1])

    def is_dataset(self, cls: Class) -> bool:
        """Return whether a class is one that a DataLoader takes."""
        return self.is_kind(cls, DATASETS)

    def is_model(self, cls: Class) -> bool:
        """Return whether a class is a torch module."""
        return self.is_kind(cls, re.compile(r"(^|\.)(nn\.Module|LightningModule|PreTrainedModel)$|^Module$"))

    def method(self, cls: Class, name: str) -> Function | None:
        """Return a method of a class or of its bases in the project."""
        return next((one.methods[name] for one in self.ancestors(cls)[0] if name in one.methods), None)

    def resolve(self, module: Module, call: ast.Call) -> tuple[list[Function], bool]:
        """Return the functions of the project that a call may run, and whether that is known for sure."""
        func = call.func
        if isinstance(func, ast.Name):
            around = module.function_of(call)
            while around is not None:
                inner = module.nested.get(around, {}).get(func.id)
                if inner is not None:
                    return [inner], True
                around = around.outer
        if isinstance(func, ast.Attribute) and _is_self(func.value):
            around = module.function_of(call)
            while around is not None and around.cls is None:
                around = around.outer
            if around is not None and around.cls is not None:
                own = self.method(around.cls, func.attr)
                return ([own], True) if own else ([], False)
            return [], False
        dotted = module.qualified(func)
        found = self.find(dotted) if dotted else None
        if isinstance(found, Function):
            return [found], True
        if isinstance(func, ast.Attribute) and func.attr not in _COMMON and len(func.attr) > 4:
            root = module.imports.get((dotted or "").partition(".")[0])
            candidates = self.methods.get(func.attr, [])
            if root is None and 1 <= len(candidates) <= 3:
                return list(candidates), False
        return [], False


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"self", "cls"}

"""DataLoaders with their arguments followed, what they load from, and how they are used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from underfed.audit.module import LOOPS, Class, Module
from underfed.audit.scopes import assignments
from underfed.audit.values import Value, Values

_NAMES = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "monai.data.DataLoader",
    }
)
_ORDER = [
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
]
_EVALUATION = re.compile(r"val|valid|test|eval|dev(?!ice)|infer|predict", re.IGNORECASE)
#: Data sets whose samples are slices of tensors in memory: workers make those slower.
_IN_MEMORY = re.compile(r"(^|\.)(TensorDataset|StackDataset)$")
_ABSENT = Value(True, None, "absent")


@dataclass(frozen=True, eq=False)
class Loader:
    """One call that makes a DataLoader."""

    module: Module
    call: ast.Call
    values: Values

    def given(self, name: str) -> ast.expr | None:
        """Return an argument's expression: positional, by keyword, or from a `**` dictionary that is written out."""
        for keyword in self.call.keywords:
            if keyword.arg == name:
                return keyword.value
        if name in _ORDER and _ORDER.index(name) < len(self.call.args):
            return self.call.args[_ORDER.index(name)]
        for keyword in self.call.keywords:
            if keyword.arg is None:
                table = self.values.mapping(self.module, keyword.value)
                if table is not None and name in table:
                    return table[name]
        return None

    @property
    def is_open(self) -> bool:
        """Return whether some arguments come from where they cannot be followed."""
        if any(isinstance(arg, ast.Starred) for arg in self.call.args):
            return True
        spread = [k.value for k in self.call.keywords if k.arg is None]
        return any(self.values.mapping(self.module, value) is None for value in spread)

    def argument(self, name: str, default: object) -> Value:
        """Return an argument's value; one that is absent has the default of torch."""
        node = self.given(name)
        if node is not None:
            return self.values.of(self.module, node)
        return Value(False) if self.is_open else Value(True, default, _ABSENT.via)

    @property
    def workers(self) -> Value:
        """Return the number of workers."""
        return self.argument("num_workers", 0)

    @property
    def target(self) -> str:
        """Return the name that it is assigned to, or the function that returns it."""
        for around in self.module.up(self.call):
            if isinstance(around, ast.Assign):
                return ast.unparse(around.targets[0])
            if isinstance(around, ast.Return | ast.FunctionDef | ast.AsyncFunctionDef):
                function = self.module.function_of(self.call)
                return function.name if function else ""
            if isinstance(around, ast.stmt):
                break
        return ""

    @property
    def evaluates(self) -> bool:
        """Return whether it loads validation or test data, by its names."""
        function = self.module.function_of(self.call)
        data = self.given("dataset")
        texts = [self.target, ast.unparse(data) if data is not None else "", function.name if function else ""]
        if any("train" in text.lower() for text in texts[:2]):
            return False
        return any(_EVALUATION.search(text) for text in texts)

    @property
    def dataset_class(self) -> Class | str | None:
        """Return the class of its data set: of the project, or the qualified name of one outside; None if not known."""
        node = self.given("dataset")
        for _ in range(3):
            if isinstance(node, ast.Name):
                function = self.module.function_of(self.call)
                stored = (assignments(function).get(node.id) if function else None) or self.module.constants.get(
                    node.id
                )
                if not stored or any(one is None for one in stored):
                    return None
                node = stored[-1]
            elif isinstance(node, ast.Call):
                name = self.module.called(node)
                found = self.values.project.find(name)
                return found if isinstance(found, Class) else name or None
            else:
                return None
        return None

    @property
    def in_memory(self) -> bool:
        """Return whether samples are slices of tensors in memory."""
        found = self.dataset_class
        if isinstance(found, Class):
            get = self.values.project.method(found, "__getitem__")
            if get is None:
                return False
            return all(_is_cheap(node) for node in ast.walk(get.node) if isinstance(node, ast.Call))
        return found is not None and bool(_IN_MEMORY.search(found))

    @property
    def batched_already(self) -> bool:
        """Return whether the data set itself makes the batches (batch_size=None)."""
        node = self.given("batch_size")
        return isinstance(node, ast.Constant) and node.value is None

    @property
    def in_loop(self) -> bool:
        """Return whether it is made anew in each pass of a loop that is not over a few names or folds."""
        for around in self.module.up(self.call):
            if isinstance(around, ast.For | ast.AsyncFor):
                return "epoch" in (ast.unparse(around.target) + ast.unparse(around.iter)).lower()
            if isinstance(around, ast.DictComp | ast.ListComp | ast.GeneratorExp):
                return False
        return False

    @property
    def used_again(self) -> bool:
        """Return whether a loop goes over it more than once: it stands in an outer loop, or a call in one gets it."""
        name = self.target
        if not name:
            return False
        short = name.rpartition(".")[2]
        for node in self.module.of(ast.Name) + self.module.of(ast.Attribute):
            if getattr(node, "id", getattr(node, "attr", "")) != short or not isinstance(node.ctx, ast.Load):
                continue
            loops = [around for around in self.module.up(node) if isinstance(around, LOOPS)]
            own = [loop for loop in loops if isinstance(loop, ast.For) and _within(self.module, node, loop.iter)]
            if len(loops) > len(own):
                return True
        return False


def _is_cheap(call: ast.Call) -> bool:
    """Return whether a call takes a sample out of memory and no more: `tuple(t[i].to(device) for t in self.data)`."""
    if isinstance(call.func, ast.Name):
        return call.func.id in {"tuple", "list", "dict", "map", "len", "int", "zip"}
    return isinstance(call.func, ast.Attribute) and call.func.attr in {"to", "cuda", "long", "float", "clone", "items"}


def _within(module: Module, node: ast.AST, top: ast.AST) -> bool:
    at: ast.AST | None = node
    while at is not None:
        if at is top:
            return True
        at = module.parents.get(at)
    return False


def loaders(module: Module, values: Values) -> Iterator[Loader]:
    """Give the DataLoaders that a module makes, subclasses of the project included."""
    for call in module.calls:
        name = module.called(call)
        if name in _NAMES:
            yield Loader(module, call, values)
        elif name.endswith("DataLoader"):
            found = values.project.find(name)
            if isinstance(found, Class) and any(base in _NAMES for base in values.project.ancestors(found)[1]):
                if "__init__" not in found.methods:
                    yield Loader(module, call, values)

"""One module: its tree, what its names mean, its functions and classes."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_N = TypeVar("_N", bound=ast.AST)

#: Long forms of names that are the same object.
_SAME = {
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.utils.data.distributed.DistributedSampler": "torch.utils.data.DistributedSampler",
}


@dataclass(eq=False)
class Function:
    """A function or method; `cls` is its class, `outer` the function it is written in."""

    module: Module
    node: FunctionNode
    cls: Class | None = None
    outer: Function | None = None

    @property
    def name(self) -> str:
        """Return its name."""
        return self.node.name

    @cached_property
    def parameters(self) -> dict[str, ast.expr | None]:
        """Return its parameters in order, with their defaults."""
        args = self.node.args
        plain = [*args.posonlyargs, *args.args]
        defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults)) + list(args.defaults)
        found = {arg.arg: default for arg, default in zip(plain, defaults, strict=True)}
        found.update({arg.arg: default for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)})
        return found


@dataclass(eq=False)
class Class:
    """A class with its methods and the qualified names of its bases."""

    module: Module
    node: ast.ClassDef
    bases: list[str]
    methods: dict[str, Function] = field(default_factory=dict)


class Module:
    """One source file. Raises what `ast.parse` raises."""

    def __init__(self, path: str, name: str, source: str, *, is_package: bool = False) -> None:
        self.path, self.name, self.source, self.is_package = path, name, source, is_package
        self.tree = ast.parse(source, filename=path)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.by_type: dict[type, list[ast.AST]] = {}
        self.imports: dict[str, str] = {}
        self.stars: list[str] = []
        self.functions: dict[str, Function] = {}
        self.all_functions: dict[ast.AST, Function] = {}
        self.classes: dict[str, Class] = {}
        self.class_of: dict[ast.AST, Class] = {}
        self.constants: dict[str, list[ast.expr]] = {}
        self.nested: dict[Function, dict[str, Function]] = {}
        self._qualified: dict[ast.AST, str | None] = {}
        self._index()

    def _walk(self) -> None:
        by_type, parents = self.by_type, self.parents
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind in by_type:
                by_type[kind].append(node)
            else:
                by_type[kind] = [node]
            children: list[ast.AST] = []
            for name in kind._fields:  # twice as fast as ast.iter_child_nodes, and most of the time went there
                value = getattr(node, name, None)
                if isinstance(value, list):
                    children += [part for part in value if isinstance(part, ast.AST)]
                elif isinstance(value, ast.AST):
                    children.append(value)
            for child in children:
                parents[child] = node
            children.reverse()
            stack += children

    @cached_property
    def depth(self) -> int:
        """Return how deeply its tree is nested."""
        deepest = 0
        stack: list[tuple[ast.AST, int]] = [(self.tree, 0)]
        while stack:
            node, depth = stack.pop()
            deepest = max(deepest, depth)
            stack += [(child, depth + 1) for child in ast.iter_child_nodes(node)]
        return deepest

    def _index(self) -> None:
        self._walk()
        for star in self.of(ast.Import):
            for alias in star.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                self.imports[alias.asname or top] = top
        for origin in self.of(ast.ImportFrom):
            base = self._absolute(origin)
            for alias in origin.names:
                if alias.name == "*":
                    self.stars.append(base)
                else:
                    self.imports[alias.asname or alias.name] = f"{base}.{alias.name}" if base else alias.name
        for cls in self.of(ast.ClassDef):
            known = self.class_of[cls] = Class(self, cls, [])
            self.classes.setdefault(cls.name, known)
        for known in self.class_of.values():
            known.bases = [name for base in known.node.bases if (name := self.qualified(base))]
        for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
            for node in self.of(kind):
                self._function(node)  # type: ignore[arg-type]
        for statement in self.tree.body:
            self._constant(statement)

    def _function(self, node: FunctionNode) -> Function:
        if node in self.all_functions:
            return self.all_functions[node]
        at = self.parents[node]
        while not isinstance(at, ast.ClassDef | FunctionNode | ast.Module):
            at = self.parents[at]
        function = self.all_functions[node] = Function(self, node)
        if isinstance(at, ast.ClassDef):
            function.cls = self.class_of[at]
            function.cls.methods.setdefault(node.name, function)
        elif isinstance(at, FunctionNode):
            function.outer = self._function(at)
            self.nested.setdefault(function.outer, {})[node.name] = function
        else:
            self.functions[node.name] = function
        return function

    def _constant(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    self.constants.setdefault(target.id, []).append(statement.value)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            self.constants.setdefault(statement.target.id, []).append(statement.value)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            for inner in ast.walk(statement):
                if isinstance(inner, ast.Assign):
                    for target in inner.targets:
                        if isinstance(target, ast.Name):  # assigned under a condition: never the only value
                            self.constants.setdefault(target.id, []).extend([inner.value, inner.value])

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join([*parts, *([node.module] if node.module else [])])

    @cached_property
    def globals(self) -> frozenset[str]:
        """Return the names that functions declare `global`, so that they can be assigned anywhere."""
        return frozenset(name for node in self.of(ast.Global) for name in node.names)

    def of(self, kind: type[_N]) -> list[_N]:
        """Return all nodes of a type, in source order."""
        return self.by_type.get(kind, [])  # type: ignore[return-value]

    @property
    def calls(self) -> list[ast.Call]:
        """Return all calls."""
        return self.of(ast.Call)

    def qualified(self, node: ast.AST | None) -> str | None:
        """Return the dotted name of a name or attribute, imports resolved; None for anything else.

        Names of this module come with its own name in front; names that nothing here defines stay as they are.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        head = self.imports.get(node.id)
        if head is None:
            if node.id in self.functions or node.id in self.classes:
                head = f"{self.name}.{node.id}"
            else:
                head = self._from_star(node.id) if not parts else node.id
        full = ".".join([head, *reversed(parts)])
        return _SAME.get(full, full)

    def _from_star(self, name: str) -> str:
        for base in self.stars:
            if base.startswith("torch") and name in _STARRED.get(base, ()):
                return f"{base}.{name}"
        return name

    def called(self, node: ast.AST) -> str:
        """Return the qualified name of what a call calls, or an empty text."""
        if not isinstance(node, ast.Call):
            return ""
        if node not in self._qualified:
            self._qualified[node] = self.qualified(node.func)
        return self._qualified[node] or ""

    def function_of(self, node: ast.AST) -> Function | None:
        """Return the function that a node is written in."""
        at = self.parents.get(node)
        while at is not None:
            if at in self.all_functions:
                return self.all_functions[at]
            at = self.parents.get(at)
        return None

    def up(self, node: ast.AST) -> list[ast.AST]:
        """Return the nodes around a node, innermost first, up to and with the function it is in."""
        found: list[ast.AST] = []
        at = self.parents.get(node)
        while at is not None:
            found.append(at)
            if isinstance(at, FunctionNode):
                break
            at = self.parents.get(at)
        return found

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """Return the statement that a node is part of."""
        at: ast.AST | None = node
        while at is not None and not isinstance(at, ast.stmt):
            at = self.parents.get(at)
        return at

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [0], 0
        for line in self._lines:
            at += len(line)
            starts.append(at)
        return starts

    @cached_property
    def _lines(self) -> list[str]:
        # As the parser counts them: str.splitlines knows many more line ends.
        return [*_LINE.findall(self.source), ""]

    def line(self, number: int) -> str:
        """Return a line (from 1) without its end."""
        return self._lines[number - 1].rstrip("\r\n") if 0 < number <= len(self._lines) else ""

    def offset(self, line: int, column: int) -> int:
        """Return the offset in characters of a parser's position: line from 1, column in UTF-8 bytes from 0."""
        text = self._lines[line - 1]
        if not text.isascii():
            column = len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))
        return self._starts[line - 1] + column

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column (both from 1, in characters) of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return line + 1, offset - self._starts[line] + 1

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return the offsets of a node's first character and of the one behind its last."""
        start = self.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self.offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return start, end

    def text(self, node: ast.AST) -> str:
        """Return a node's source."""
        start, end = self.span(node)
        return self.source[start:end]


_STARRED = {
    "torch.utils.data": ("DataLoader", "Dataset", "IterableDataset", "TensorDataset", "DistributedSampler"),
    "torch.nn": ("Module", "MultiheadAttention", "DataParallel", "Linear", "Conv2d"),
    "torch": ("no_grad", "tensor", "zeros", "ones", "save", "compile"),
}

"""What a rule of the audit is, and what it may look at."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from underfed.audit.finding import Hit, Sure, Unknown
from underfed.audit.heat import Heat, Hot
from underfed.audit.loaders import Loader, loaders
from underfed.audit.loops import Training
from underfed.audit.module import Function, Module
from underfed.audit.project import Project
from underfed.audit.tensors import Homes
from underfed.audit.values import Value, Values


@dataclass
class Whole:
    """What is known of a project."""

    project: Project
    training: Training
    values: Values
    heat: Heat
    samples: Heat

    @cached_property
    def made(self) -> dict[Module, list[Loader]]:
        """Return the DataLoaders of the project, by the module that makes them."""
        return {module: list(loaders(module, self.values)) for module in self.project.modules}

    @cached_property
    def loaders(self) -> list[Loader]:
        """Return all DataLoaders of the project."""
        return [one for made in self.made.values() for one in made]

    @cached_property
    def pins(self) -> bool | None:
        """Return whether the project's loaders of training data pin: None where that is not known."""
        states = {one.argument("pin_memory", False) for one in self.loaders if not one.evaluates}
        if not states or any(not state.known for state in states):
            return None
        return all(state.value is True for state in states)

    @cached_property
    def moves_batches(self) -> bool:
        """Return whether the project moves tensors to a device by itself, and does not do so in its datasets."""
        return self.project.mentions(r"\.cuda\(|\.to\(\s*(\w+\.)*(device|DEVICE|dev|DEV|local_rank|rank|[\"']cuda)")


@dataclass
class Code:
    """One module as rules see it."""

    whole: Whole
    module: Module
    unknown: list[Unknown] = field(default_factory=list)
    _homes: dict[Function | None, Homes] = field(default_factory=dict)

    @property
    def project(self) -> Project:
        """Return the project."""
        return self.whole.project

    @property
    def calls(self) -> list[ast.Call]:
        """Return all calls of the module."""
        return self.module.calls

    @cached_property
    def hot(self) -> list[Hot]:
        """Return what runs in every step."""
        return self.whole.heat.of(self.module)

    @cached_property
    def sampled(self) -> list[Hot]:
        """Return what runs for every sample."""
        return self.whole.samples.of(self.module)

    @property
    def loaders(self) -> list[Loader]:
        """Return the DataLoaders that this module makes."""
        return self.whole.made[self.module]

    def hot_calls(self) -> Iterator[tuple[ast.Call, str, Sure]]:
        """Give the calls that run in every step, with their qualified name."""
        for hot in self.hot:
            if isinstance(hot.node, ast.Call):
                yield hot.node, self.module.called(hot.node), hot.sure

    def value(self, node: ast.expr | None) -> Value:
        """Return what an expression of this module stands for."""
        return self.whole.values.of(self.module, node)

    def homes(self, node: ast.AST) -> Homes:
        """Return where the names around a node live."""
        function = self.module.function_of(node)
        if function not in self._homes:
            self._homes[function] = Homes(self.module, function)
        return self._homes[function]

    def short(self, node: ast.AST, most: int = 60) -> str:
        """Return a node's source as one short line."""
        line = " ".join(self.module.text(node).split())
        return line if len(line) <= most else line[: most - 3] + "..."

    def method_name(self, call: ast.Call) -> str:
        """Return the last part of what a call calls."""
        return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")

    def keyword(self, call: ast.Call, name: str) -> ast.expr | None:
        """Return a call's keyword argument."""
        return next((k.value for k in call.keywords if k.arg == name), None)

    def is_true(self, call: ast.Call, name: str) -> bool:
        """Return whether a keyword argument is known to be True."""
        value = self.value(self.keyword(call, name))
        return value.known and value.value is True

    def is_false(self, call: ast.Call, name: str) -> bool:
        """Return whether a keyword argument is written as False."""
        value = self.value(self.keyword(call, name))
        return value.known and value.value is False

    def not_known(self, node: ast.AST, text: str) -> None:
        """Note a setting whose value is not in the source."""
        self.unknown.append(Unknown(self.module.path, node.lineno, text))  # type: ignore[attr-defined]


@dataclass(frozen=True, kw_only=True)
class AuditRule:
    """One pattern in source code. `settle` says what a run shows that source cannot."""

    id: str
    name: str
    settle: str
    doc: str
    check: Callable[[Code], Iterable[Hit]]

    @property
    def pattern(self) -> str:
        """Return the sentence that states the pattern."""
        return " ".join(inspect.cleandoc(self.doc).partition("\n\n")[0].split())

    @cached_property
    def why(self) -> str:
        """Return why the pattern costs: the text under `Why it costs`, as one line."""
        _, _, rest = inspect.cleandoc(self.doc).partition("Why it costs\n")
        lines = []
        for line in rest.splitlines():
            if line and not line.startswith(" "):
                break
            lines.append(line.strip())
        return " ".join(" ".join(lines).split())

"""transformers.TrainingArguments and its subclasses: calls that make one, and the values of its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from underfed.audit.module import Class, Module
from underfed.audit.records import HF_DEFAULTS
from underfed.audit.values import UNKNOWN, Value, Values


@dataclass(frozen=True)
class Arguments:
    """One call that makes the arguments of a Trainer."""

    module: Module
    call: ast.Call
    values: Values
    cls: Class | str

    def field(self, name: str) -> Value:
        """Return the value of a field: given, or the default of the nearest class that has one."""
        given = next((k.value for k in self.call.keywords if k.arg == name), None)
        if given is not None:
            return self.values.of(self.module, given)
        for keyword in self.call.keywords:
            if keyword.arg is None:
                entries = self.values.mapping(self.module, keyword.value)
                if entries is None:
                    return UNKNOWN
                if name in entries:
                    return self.values.of(self.module, entries[name])
        found = self.values.records.field(self.cls, name)
        if found is None:
            return Value(True, HF_DEFAULTS[name], "absent") if name in HF_DEFAULTS else UNKNOWN
        return self.values.of(found[0], found[1])

    def each_step(self, what: str, *strategies: str, otherwise: bool) -> bool:
        """Return whether `WHAT_steps=1` makes something happen in each step.

        A strategy, where one is given, has to say `steps`; `otherwise` is what holds where none is.
        """
        steps = self.field(f"{what}_steps")
        if not steps.known or type(steps.value) is not int or steps.value != 1:
            return False
        given = [name for name in strategies if self.is_given(name)]
        return all(self._says_steps(name) for name in given) if given else otherwise

    def _says_steps(self, name: str) -> bool:
        written = next((k.value for k in self.call.keywords if k.arg == name), None)
        if isinstance(written, ast.Attribute):  # IntervalStrategy.STEPS
            return written.attr == "STEPS"
        return bool(self.field(name).value == "steps")

    def is_given(self, name: str) -> bool:
        """Return whether the call or a class of the project sets a field."""
        if any(k.arg == name for k in self.call.keywords):
            return True
        known = self.values.project.ancestors(self.cls)[0] if isinstance(self.cls, Class) else []
        return any(
            name == getattr(getattr(line, "target", None), "id", None) for one in known for line in one.node.body
        )


def trainer_arguments(module: Module, values: Values) -> Iterator[Arguments]:
    """Give the calls of a module that make TrainingArguments or a subclass of the project."""
    for call in module.calls:
        name = module.called(call)
        if not name:
            continue
        found = values.project.find(name)
        if isinstance(found, Class):
            if any(base.endswith("TrainingArguments") for base in values.project.ancestors(found)[1]):
                yield Arguments(module, call, values, found)
        elif name.endswith("TrainingArguments") and "transformers" in name:  # setfit has its own, with other fields
            yield Arguments(module, call, values, name)

"""What can be switched from outside: the words of `underfed try`, and the switches of the agent behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from underfed.diagnosis import Numerics
from underfed.errors import UsageError
from underfed.playbook.registry import RULES, find
from underfed.playbook.switches import BY_RULE

NUMBER = "a whole number"


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One switch: the values it takes (NUMBER, or words), what it does to the numbers, and its default."""

    name: str
    values: tuple[str, ...]
    numerics: Numerics
    default: str | None = None
    least: int = 1


KNOBS: dict[str, Knob] = {
    knob.name: knob
    for knob in (
        Knob(name="workers", values=(NUMBER,), numerics="exact", least=0),
        Knob(name="persistent_workers", values=("on",), numerics="exact", default="on"),
        Knob(name="prefetch_factor", values=(NUMBER,), numerics="exact"),
        Knob(name="pin_memory", values=("on",), numerics="exact", default="on"),
        Knob(name="non_blocking", values=("on",), numerics="exact", default="on"),
        Knob(name="threads", values=(NUMBER,), numerics="reorder"),
        Knob(name="tf32", values=("on",), numerics="precision", default="on"),
        Knob(name="cudnn_benchmark", values=("on",), numerics="reorder", default="on"),
        Knob(name="channels_last", values=("on",), numerics="reorder", default="on"),
        Knob(name="autocast", values=("bf16",), numerics="precision", default="bf16"),
        Knob(name="optimizer", values=("fused", "foreach"), numerics="reorder", default="fused"),
        Knob(name="set_to_none", values=("on",), numerics="exact", default="on"),
        Knob(name="anomaly", values=("off",), numerics="exact", default="off"),
        Knob(name="checkpointing", values=("off",), numerics="exact", default="off"),
        Knob(name="sdpa", values=("flash", "efficient", "math"), numerics="reorder"),
        Knob(
            name="compile",
            values=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
            numerics="reorder",
            default="default",
        ),
        Knob(name="dynamic", values=("on",), numerics="reorder", default="on"),
        Knob(name="empty_cache", values=("off",), numerics="exact", default="off"),
        Knob(name="gc", values=("off",), numerics="exact", default="off"),
        Knob(name="bucket_cap_mb", values=(NUMBER,), numerics="reorder"),
        Knob(name="no_sync", values=("on",), numerics="reorder", default="on"),
    )
}

_ORDER: tuple[Numerics, ...] = ("exact", "reorder", "precision", "semantic")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing to try: a rule or a knob with its switches. `switches` is empty where it needs the user's edit; `edit`
    is what a rule asks for, to be shown where its switches do nothing.
    """

    name: str
    rule: str | None
    switches: tuple[tuple[str, str | None], ...]
    numerics: Numerics
    edit: str | None = None

    @property
    def known(self) -> bool:
        """Whether every switch has its value."""
        return all(value is not None for _, value in self.switches)

    def filled(self, value: str) -> Change:
        """Return the change with its open value set."""
        switches = tuple((name, value if old is None else old) for name, old in self.switches)
        return replace(self, name=f"{self.name}={value}", switches=switches)


def parse(words: Sequence[str]) -> list[Change]:
    """Read RULE[=VALUE] and KNOB[=VALUE] words; raises UsageError that says what can be written instead."""
    changes = [_change(word) for word in words]
    switched = [name for change in changes for name, _ in change.switches]
    for name in switched:
        if switched.count(name) > 1:
            raise UsageError(f"try: {name} is switched twice; give each setting a trial of its own")
    return changes


def _change(word: str) -> Change:
    key, equals, value = word.partition("=")
    knob = KNOBS.get(key.lower().replace("-", "_").removeprefix("num_"))
    if knob is not None:
        value = _checked(knob, value if equals else knob.default, word)
        name = f"{knob.name}={value}"
        return Change(name=name, rule=None, switches=((knob.name, value),), numerics=knob.numerics)
    rule = find(key)
    if rule is None:
        rules = ", ".join(rule.id for rule in RULES if rule.id in BY_RULE)
        raise UsageError(f"try: {word}: no such rule or switch. Rules: {rules}; switches: {', '.join(KNOBS)}")
    switches, edit = BY_RULE.get(rule.id), _section(rule.doc, "Fix")
    if switches is None:
        return Change(name=rule.id, rule=rule.id, switches=(), numerics=rule.numerics, edit=edit)
    if equals:
        first = KNOBS[switches[0][0]]
        switches = ((first.name, _checked(first, value, word)), *switches[1:])
    name = word if equals else rule.id
    return Change(name=name, rule=rule.id, switches=switches, numerics=rule.numerics, edit=edit)


def _checked(knob: Knob, value: str | None, word: str) -> str:
    takes = f"a whole number from {knob.least} on" if NUMBER in knob.values else " or ".join(knob.values)
    if NUMBER in knob.values:
        if value and value.isascii() and value.isdigit() and len(value) < 6 and int(value) >= knob.least:
            return str(int(value))
    elif value in knob.values:
        return value
    raise UsageError(f"try: {word}: give {knob.name} a value: {takes}")


def _section(doc: str, heading: str) -> str:
    """Return one section of a rule's page as one line."""
    inside, kept = False, []
    for line in doc.splitlines():
        if line and not line[0].isspace():
            inside = line.strip() == heading
        elif inside:
            kept.append(line.strip())
    return " ".join(" ".join(kept).split())


def together(changes: Sequence[Change]) -> Change:
    """Return all changes as one; its numbers are judged by the least strict class among them."""
    return Change(
        name=" + ".join(change.name for change in changes),
        rule=None,
        switches=tuple(switch for change in changes for switch in change.switches),
        numerics=max((change.numerics for change in changes), key=_ORDER.index),
    )

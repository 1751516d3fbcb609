"""Every rule under one roof: those of the playbook, which a run or a trace shows, and those of the audit.

A rule of the playbook and a rule of the audit with the same id are one entry: the same pattern, seen in two ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

from underfed.audit.registry import RULES as AUDIT
from underfed.audit.rule import AuditRule
from underfed.diagnosis import Numerics, Stage
from underfed.playbook.registry import RULES as PLAYBOOK
from underfed.playbook.rule import Rule
from underfed.report.rulepage import pattern, sections_of

#: Stage, and what the fix does to the numbers, of the rules that only the audit has.
_ONLY_IN_SOURCE: dict[str, tuple[Stage, Numerics]] = {
    "X40": ("dataloader", "exact"),
    "X41": ("dataloader", "exact"),
    "X42": ("dataloader", "exact"),
    "X43": ("dataloader", "semantic"),
    "X44": ("dataloader", "exact"),
    "X45": ("free", "exact"),
    "X46": ("free", "exact"),
    "X47": ("free", "reorder"),
    "X48": ("free", "reorder"),
    "X49": ("free", "exact"),
    "X50": ("kernels", "reorder"),
    "X51": ("kernels", "reorder"),
    "X52": ("kernels", "reorder"),
    "X54": ("memory", "reorder"),
    "X55": ("precision", "precision"),
    "X56": ("comms", "semantic"),
    "X57": ("comms", "exact"),
    "X58": ("comms", "reorder"),
    "X59": ("comms", "semantic"),
    "X60": ("comms", "reorder"),
    "X61": ("dataloader", "reorder"),
    "X53": ("kernels", "reorder"),
    "X62": ("free", "semantic"),
    "X63": ("kernels", "reorder"),
    "X64": ("comms", "exact"),
    "X65": ("dataloader", "exact"),
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One pattern: the rule that finds it in runs and traces, the rule that finds it in source code, or both."""

    seen: Rule | None
    written: AuditRule | None

    @property
    def _rule(self) -> Rule | AuditRule:
        rule = self.seen or self.written
        if rule is None:
            raise ValueError("an entry of the rulebook needs a rule")
        return rule

    @property
    def id(self) -> str:
        """The id, as a verdict or a finding shows it."""
        return self._rule.id

    @property
    def name(self) -> str:
        """The name: a slug that states the pattern."""
        return self._rule.name

    @property
    def doc(self) -> str:
        """The docstring that the page starts with: the playbook's where there are two."""
        return self._rule.doc

    @property
    def stage(self) -> Stage:
        """The stage, in cost order."""
        return self.seen.stage if self.seen else _stage_by_neighbours(self.id)

    @property
    def numerics(self) -> Numerics | None:
        """What the fix does to the numbers, None where nobody has said."""
        if self.seen:
            return self.seen.numerics
        return _ONLY_IN_SOURCE[self.id][1] if self.id in _ONLY_IN_SOURCE else None

    @cached_property
    def pattern(self) -> str:
        """The sentence that states the pattern."""
        return pattern(self.doc)

    def where_seen(self) -> str:
        """What finds it, in words."""
        ways = ["`underfed run`, `read`"] * (self.seen is not None) + ["`underfed audit`"] * (self.written is not None)
        return ", ".join(ways)


def _stage_by_neighbours(wanted: str) -> Stage:
    """Return the stage of a rule that only the audit has: written down above, or that of the rule before it there.

    The audit lists its rules in cost order too, so a rule that is in no table belongs beside its neighbour.
    """
    stages: dict[str, Stage] = {rule.id: rule.stage for rule in PLAYBOOK}
    stages |= {name: placed[0] for name, placed in _ONLY_IN_SOURCE.items()}
    stage: Stage = "box"
    for rule in AUDIT:
        stage = stages.get(rule.id, stage)
        if rule.id == wanted:
            break
    return stage


def entries() -> Iterator[Entry]:
    """Yield all rules by stage, in cost order inside: those of the playbook first."""
    written = {rule.id: rule for rule in AUDIT}
    joined = [Entry(seen=rule, written=written.pop(rule.id, None)) for rule in PLAYBOOK]
    joined += [Entry(seen=None, written=rule) for rule in written.values()]
    order = list(get_args(Stage))
    yield from sorted(joined, key=lambda entry: order.index(entry.stage))


def find_entry(wanted: str) -> Entry | None:
    """Return the rule with this id or name; case does not matter, and spaces and underscores are hyphens in a name."""
    key = _key(wanted)
    return next((entry for entry in entries() if key in (entry.id.lower(), entry.name)), None)


def near_entries(wanted: str, most: int = 3) -> list[Entry]:
    """Return the rules whose id or name is close to a word or holds it, closest first."""
    from difflib import SequenceMatcher

    key = _key(wanted)
    scored = []
    for place, entry in enumerate(entries()):
        score = max(SequenceMatcher(None, key, text).ratio() for text in (entry.id.lower(), entry.name))
        if len(key) >= 3 and key in entry.name:
            score = 1.0
        if score >= 0.5:
            scored.append((-score, place, entry))
    return [entry for _, _, entry in sorted(scored, key=lambda item: item[:2])[:most]]


def _key(wanted: str) -> str:
    return wanted.strip().lower().replace(" ", "-").replace("_", "-")


def as_data(entry: Entry) -> dict[str, object]:
    """Return a rule as plain data for `explain --json`."""
    return {
        "id": entry.id,
        "name": entry.name,
        "stage": entry.stage,
        "bound": entry.seen.bound if entry.seen else None,
        "numerics": entry.numerics,
        "found_by": ["run", "read"] * (entry.seen is not None) + ["audit"] * (entry.written is not None),
        "pattern": entry.pattern,
        "sections": _plain(entry.doc),
        "in_source": entry.written
        and {
            "pattern": entry.written.pattern,
            "sections": _plain(entry.written.doc) if entry.seen else {},
            "a_run_shows": entry.written.settle,
        },
    }


def _plain(doc: str) -> dict[str, str]:
    return {heading: "\n".join(body) for heading, body in sections_of(doc) if heading}

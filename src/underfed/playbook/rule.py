"""What a rule of the playbook is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from underfed.diagnosis import Bound, Finding, Fix, Gain, Numerics, Observation, Stage

if TYPE_CHECKING:
    from underfed.playbook.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One pattern that makes training slow.

    `doc` is the docstring of the rule's module: its first line says the pattern in a sentence; the sections behind it
    (What it looks like, Why it costs, Fix, When it stays silent, Not to be confused with, Facts) are the text of
    `underfed explain ID` and of the docs page.
    """

    id: str
    name: str
    stage: Stage
    bound: Bound
    numerics: Numerics
    doc: str
    check: Callable[[Evidence], Finding | None]

    def finding(
        self,
        *,
        summary: str,
        fix: Fix,
        gain: Gain | None = None,
        where: str | None = None,
        evidence: list[Observation] | None = None,
        helps_now: bool = True,
        note: str | None = None,
        bound: Bound | None = None,
    ) -> Finding:
        """Make a finding of this rule; `bound` only where the run, not the rule, says what it holds up."""
        return Finding(
            rule=self.id,
            name=self.name,
            stage=self.stage,
            bound=bound or self.bound,
            numerics=self.numerics,
            summary=summary,
            gain=gain,
            where=where,
            evidence=evidence or [],
            fix=fix,
            helps_now=helps_now,
            note=note,
        )

"""The records of a comparison: the JSON of `underfed compare --json`. Times in ms a step; null is not known."""

from __future__ import annotations

from typing import Literal

import msgspec

from underfed.diagnosis import Bound, Confidence, Record
from underfed.trial.records import Ratio

COMPARISON = "underfed.comparison/1"

Same = Literal["same", "different", "not-known"]
Outcome = Literal["faster", "slower", "no-change", "undecided"]
Ruling = Literal["pass", "fail", "undecided"]


class Side(Record, frozen=True, kw_only=True):
    """One of the two: what it is, and what its runs say. `steps` and `runs` are those that the figures rest on."""

    path: str
    kind: Literal["recording", "recordings", "trace", "trial"]
    runs: int
    steps: int | None = None
    step_ms: float | None = None
    bound: Bound = "unknown"
    confidence: Confidence = "low"
    cause: str | None = None
    text: str = ""
    marks: tuple[str, ...] = ()
    """What disturbed its runs."""


class Fact(Record, frozen=True, kw_only=True):
    """One circumstance of both. `work` is True where a difference makes the step another amount of work."""

    name: str
    a: str | None
    b: str | None
    same: Same
    work: bool


class Part(Record, frozen=True, kw_only=True):
    """One part of the step's budget in both; `change` is B less A."""

    name: str
    a: float | None
    b: float | None
    change: float | None


class Comparison(Record, frozen=True, kw_only=True):
    """Two runs against each other. `gain` is the step of A over the step of B: above 1, B is faster."""

    schema: str = COMPARISON
    a: Side
    b: Side
    work: Same
    """Whether both did the same work as far as was recorded; `not-known` where a fact of it is missing."""
    facts: tuple[Fact, ...] = ()
    outcome: Outcome
    text: str
    gain: Ratio | None = None
    detectable: float | None = None
    """The least factor that would have shown."""
    noise: float | None = None
    """Standard deviation between runs of one side, as a share of the step; where not `noise_measured`, it is allowed
    for, since no side has two runs."""
    noise_measured: bool = False
    parts: tuple[Part, ...] = ()
    limit: float | None = None
    """The slowdown above which it fails, as a share; null where none was asked for."""
    ruling: Ruling | None = None
    limits: tuple[str, ...] = ()


def to_json(record: Comparison) -> bytes:
    """Encode as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"

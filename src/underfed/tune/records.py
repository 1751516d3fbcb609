"""The records of a search: the JSON of `underfed tune --json`. Times in ms, sizes in bytes; null is not known."""

from __future__ import annotations

from typing import Literal

import msgspec

from underfed.diagnosis import Record
from underfed.trial.records import Ratio, Run, Truth

TUNING = "underfed.tuning/1"

Outcome = Literal["measured", "crashed", "killed", "too-much-memory", "not-run", "not-applied", "no-steps"]
Chosen = Literal["better", "keep", "nothing"]


class Point(Record, frozen=True, kw_only=True):
    """One setting on the curve: what was predicted, and what was measured with its 95 % interval."""

    name: str
    switches: tuple[tuple[str, str], ...]
    outcome: Outcome
    text: str
    predicted_ms: float | None = None
    step_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    runs: int = 0
    memory_predicted: int | None = None
    memory: int | None = None
    """The most that its processes held at once: private pages, and shared ones once."""
    truth: Truth | None = None
    output: tuple[str, ...] = ()
    """The last lines of a run that ended in an error."""


class Tuning(Record, frozen=True, kw_only=True):
    """A search for the settings that feed the loop."""

    schema: str = TUNING
    folder: str
    device: str | None = None
    complete: bool = True
    """False where it was interrupted or the budget ran out; what is here was measured all the same."""
    seed: int | None = None
    budget_s: float
    spent_s: float
    cpus: float | None = None
    memory_limit: int | None = None
    """What the run may hold: the tightest of the cgroup's limit, free memory and --memory."""
    base_ms: float | None = None
    points: tuple[Point, ...] = ()
    chosen: Chosen
    choice: str | None = None
    gain: Ratio | None = None
    reason: str
    line: str | None = None
    """What to write into the script."""
    where: str | None = None
    """Where the script makes its loader."""
    runs: tuple[Run, ...] = ()
    limits: tuple[str, ...] = ()


def to_json(record: Tuning) -> bytes:
    """Encode as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"

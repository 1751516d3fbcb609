"""What the user asked of a pull, and what came of each of its folders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from underfed.carry.manifest import State
from underfed.carry.names import plural, shown, size_text

_STATES: tuple[State, ...] = ("verified", "size-matched", "copied")


@dataclass
class PullOptions:
    """What the user asked for; `silence` and `retry_for` in seconds."""

    workers: int = 1
    check: bool = False
    retry_for: float = 240.0
    links: Literal["follow", "refuse"] = "follow"
    compress: bool = False
    silence: float = 30.0


@dataclass
class UnitOutcome:
    """One folder: how many files stand where, and what is wrong."""

    name: str
    states: dict[str, State] = field(default_factory=dict)
    bytes: int = 0
    fetched_files: int = 0
    fetched_bytes: int = 0
    wrong: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    failure: str | None = None

    @property
    def verified(self) -> bool:
        """Whether every file is proven and nothing else is amiss."""
        return not self.wrong and self.failure is None and all(s == "verified" for s in self.states.values())

    def count(self, state: State) -> int:
        """Return how many files are in a state."""
        return sum(s == state for s in self.states.values())

    def line(self) -> list[str]:
        """Return the folder as lines of text."""
        what = f"{plural(len(self.states), 'file')}, {size_text(self.bytes)}"
        if self.verified:
            how = f"fetched {plural(self.fetched_files, 'file')}" if self.fetched_files else "skipped: unchanged"
            return [f"verified  {shown(self.name)}  ({what}; {how})", *self._notes()]
        counts = ", ".join(f"{n} {s}" for s in _STATES if (n := self.count(s)))
        lines = [f"FAILED    {shown(self.name)}  ({what}: {counts or 'none verified'})"]
        lines += [f"          {self.failure}"] if self.failure else []
        some = list(self.wrong.items())
        lines += [f"          {shown(path)}: {why}" for path, why in some[:20]]
        lines += [f"          and {len(some) - 20} more"] if len(some) > 20 else []
        return [*lines, *self._notes()]

    def _notes(self) -> list[str]:
        return [f"          note: {note}" for note in self.notes[:20]]

    def as_json(self) -> dict[str, Any]:
        """Return the folder as JSON."""
        counts = {state: self.count(state) for state in _STATES}
        return {
            "name": shown(self.name),
            "verified": self.verified,
            "files": len(self.states),
            "bytes": self.bytes,
            "states": counts,
            "fetched_files": self.fetched_files,
            "fetched_bytes": self.fetched_bytes,
            "wrong": {shown(path): why for path, why in self.wrong.items()},
            "notes": self.notes,
            "failure": self.failure,
        }

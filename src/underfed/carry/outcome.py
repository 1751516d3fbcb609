"""What came of each run and of the whole sweep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from underfed.carry.names import plural, shown, size_text
from underfed.carry.runs import Skipped

Status = Literal["verified", "kept-out", "conflict", "unverified", "growing"]


@dataclass
class RunOutcome:
    """One run: `verified` and `kept-out` are fine, the rest is not.

    `files` and `bytes` are those verified in the destination, `copied_*` those written by this sweep.
    """

    path: str
    status: Status = "unverified"
    action: str = ""
    files: int = 0
    bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    digest: str | None = None
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    in_roster: bool | None = None

    def fail(self, reason: str, status: Status = "unverified") -> None:
        """Note why this run is not verified."""
        self.status = status
        self.reasons.append(reason)

    def line(self) -> list[str]:
        """Return the run as lines of text."""
        word = {"verified": "verified", "kept-out": "kept out", "conflict": "CONFLICT", "growing": "GROWING"}
        text = f"{word.get(self.status, 'FAILED'):<9} {shown(self.path)}"
        if self.status == "verified":
            copied = f", copied {plural(self.copied_files, 'file')}" if self.copied_files else ""
            text += f"  ({self.action}; {plural(self.files, 'file')}, {size_text(self.bytes)}{copied})"
        lines = [text]
        lines += [f"          {reason}" for reason in self.reasons]
        lines += [f"          note: {note}" for note in self.notes]
        lines += [f"          moved aside to {shown(path)}" for path in self.replaced]
        if self.in_roster is False:
            lines.append("          note: not in the roster")
        return lines


@dataclass
class Sweep:
    """All runs of a sweep, the skipped folders, the gaps in the roster, and the room left."""

    source: str
    destination: str
    runs: list[RunOutcome] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)
    space: str = ""
    stopped: str | None = None

    @property
    def exit_code(self) -> int:
        """0 if everything expected is verified, 2 if it stopped before anything was copied, else 1."""
        good = [run for run in self.runs if run.status in {"verified", "kept-out"}]
        if self.stopped and not any(run.copied_files or run.status == "verified" for run in self.runs):
            return 2
        whole = len(good) == len(self.runs) and not self.gaps and not any(skip.wrong for skip in self.skipped)
        return 0 if whole and self.runs and not self.stopped else 1

    def count(self, *statuses: str) -> int:
        """Return how many runs have one of these states."""
        return sum(run.status in statuses for run in self.runs)

    def summary(self) -> list[str]:
        """Return the last lines."""
        verified = [run for run in self.runs if run.status == "verified"]
        files, size = sum(r.files for r in verified), sum(r.bytes for r in verified)
        copied = sum(r.copied_files for r in self.runs)
        wrong = sum(skip.wrong for skip in self.skipped)
        lines = [
            f"{plural(len(verified), 'run')} verified ({plural(files, 'file')}, {size_text(size)}), "
            f"{self.count('unverified', 'conflict', 'growing') + wrong} not, {self.count('kept-out')} older kept out, "
            f"{sum(not skip.wrong for skip in self.skipped)} skipped, {len(self.gaps)} missing from the roster; "
            f"{plural(copied, 'file')} ({size_text(sum(r.copied_bytes for r in self.runs))}) copied now"
        ]
        if not self.runs:
            lines.append(f"nothing found to collect below {shown(self.source)}")
        if self.stopped:
            lines.append(f"stopped: {self.stopped}")
        lines.append(f"{shown(self.destination)}: {self.space}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        return {
            "schema": "underfed.collect/1",
            "source": shown(self.source),
            "destination": shown(self.destination),
            "exit_code": self.exit_code,
            "stopped": self.stopped,
            "space": self.space,
            "missing": [{"run": shown(name), "reason": reason} for name, reason in self.gaps],
            "skipped": [{"path": shown(s.path), "reason": s.reason, "wrong": s.wrong} for s in self.skipped],
            "runs": [{**vars(run), "path": shown(run.path)} for run in self.runs],
        }

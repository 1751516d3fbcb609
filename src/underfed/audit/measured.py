"""Findings held against a recording: which of them cost time in that run, and which do not matter there now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from underfed.audit.finding import AuditFinding
from underfed.errors import UsageError
from underfed.report.text import clean

if TYPE_CHECKING:
    from underfed.diagnosis import Diagnosis, Finding

#: Rules of the audit that a run shows under another rule's name.
_SHOWN_AS: dict[str, tuple[str, ...]] = {
    "X40": ("T8", "T4"),
    "X41": ("U8", "T8", "T4"),
    "X45": ("T6",),
    "X49": ("T12",),
    "X50": ("T14",),
    "X51": ("T14",),
    "X61": ("T3", "X1", "T8"),
}


def rank(findings: Sequence[AuditFinding], recording: Path) -> tuple[list[AuditFinding], list[AuditFinding]]:
    """Return the findings that the run speaks for, dearest first, and those that do not matter in it now.

    A finding counts if the run's diagnosis has its rule, and more if it has it at the finding's own line. Rules that no
    run can show are kept behind them. Raises UsageError where the recording cannot be used.
    """
    from underfed.playbook.registry import RULES

    diagnosis = load(recording)
    measured = {rule.id for rule in RULES} | set(_SHOWN_AS)
    by_rule = {one.rule: one for one in reversed(diagnosis.findings)}
    kept: list[tuple[float, AuditFinding]] = []
    folded: list[AuditFinding] = []
    for finding in findings:
        names = (finding.rule, *_SHOWN_AS.get(finding.rule, ()))
        seen = next((by_rule[name] for name in names if name in by_rule), None)
        if seen is None or not seen.helps_now:
            if finding.rule in measured:
                folded.append(finding)
            else:
                kept.append((0.0, finding))
            continue
        here = _same_place(finding, seen)
        gain = seen.gain.expected if seen.gain is not None else None
        score = (gain[1] if gain else 1.0) + (1000.0 if here else 0.0)
        kept.append((score, replace(finding, helps_now=True, gain=gain)))
    kept.sort(key=lambda pair: (-pair[0], pair[1].key))
    return [finding for _, finding in kept], [replace(one, helps_now=False) for one in folded]


def _same_place(finding: AuditFinding, seen: Finding) -> bool:
    """Return whether the run names this line; a recording may know the file by another path to it."""
    if seen.where is None:
        return False
    file, _, line = seen.where.rpartition(":")
    ours, theirs = Path(finding.path).parts, Path(file).parts
    shared = min(len(ours), len(theirs))
    return line.isdigit() and finding.line <= int(line) <= finding.end_line and ours[-shared:] == theirs[-shared:]


def load(path: Path) -> Diagnosis:
    """Return the Diagnosis of a recording's folder, or of a file that `--json` wrote; raises UsageError."""
    import msgspec

    from underfed.diagnosis import from_json

    saved = path / "diagnosis.json" if path.is_dir() else path
    try:
        if saved.is_file():
            return from_json(saved.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"audit: {clean(str(saved))}: is not a diagnosis: {clean(str(error))[:120]}") from error
    if not path.is_dir():
        raise UsageError(f"audit: {clean(str(path))}: no such recording")
    from underfed.diagnose.run import diagnose
    from underfed.diagnose.traced import read_window
    from underfed.recording.read import read

    return diagnose(read(path), read_window)

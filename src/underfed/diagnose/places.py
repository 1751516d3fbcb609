"""Places in source files, as people want to read them: relative to where the command was started."""

from __future__ import annotations

import re

import msgspec

from underfed.diagnosis import Diagnosis, Finding

_LIBRARY = re.compile(r"\S*/(?:site|dist)-packages/")
_STDLIB = re.compile(r"\S*/lib/python3\.\d+/")


def shorten(text: str, base: str | None) -> str:
    """Return a place, or a text that holds some, with the run's own folder and those of packages taken off."""
    if base and base != "/":
        text = text.replace(base.rstrip("/") + "/", "")
    return _STDLIB.sub("", _LIBRARY.sub("", text))


def _finding(finding: Finding, base: str | None) -> Finding:
    changed: Finding = msgspec.structs.replace(
        finding,
        where=shorten(finding.where, base) if finding.where else None,
        evidence=[msgspec.structs.replace(seen, text=shorten(seen.text, base)) for seen in finding.evidence],
    )
    return changed


def relative(diagnosis: Diagnosis, base: str | None) -> Diagnosis:
    """Shorten all places of a Diagnosis; `base` is the folder in which the command ran, where it is known."""
    changed: Diagnosis = msgspec.structs.replace(
        diagnosis, findings=[_finding(finding, base) for finding in diagnosis.findings]
    )
    return changed

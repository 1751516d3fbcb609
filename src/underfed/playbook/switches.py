"""Which switches `underfed try` has for a rule, and the command that tries a finding's fix."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from underfed.diagnosis import Finding

#: The switches behind each rule; `None` takes the value from the command line or from the diagnosis of the first run.
BY_RULE: dict[str, tuple[tuple[str, str | None], ...]] = {
    "T3": (("threads", None),),
    "T4": (("workers", None),),
    "X1": (("workers", None),),
    "T5": (("persistent_workers", "on"),),
    "T6": (("pin_memory", "on"), ("non_blocking", "on")),
    "T7": (("prefetch_factor", None),),
    "T9": (("tf32", "on"),),
    "T11": (("channels_last", "on"),),
    "T12": (("anomaly", "off"),),
    "T13": (("autocast", "bf16"),),
    "T14": (("sdpa", "flash"),),
    "T15": (("compile", "reduce-overhead"),),
    "T16": (("dynamic", "on"),),
    "T17": (("checkpointing", "off"),),
    "X10": (("gc", "off"),),
    "X11": (("optimizer", "fused"),),
    "X12": (("empty_cache", "off"),),
}

_ADVICE = re.compile(r"\b(num_workers|prefetch_factor|OMP_NUM_THREADS)=(\d+)\b")


def advised(text: str) -> str | None:
    """Return the number that a finding's fix asks for, or None."""
    found = _ADVICE.search(text)
    return found[2] if found else None


def value_of(finding: Finding) -> str | None:
    """Return the value that a finding asks for, where its fix names one."""
    return advised(f"{finding.fix.text} {finding.fix.code or ''}")


def trying(word: str) -> str:
    """Return the command that tries a rule or a switch. The user's own command is not repeated: it may hold secrets."""
    return f"underfed try {word} -- COMMAND"


def with_trials(findings: Iterable[Finding]) -> list[Finding]:
    """Say of each finding that would help now how it can be tried without editing the script, where it can."""
    return [_with_trial(finding) for finding in findings]


def _with_trial(finding: Finding) -> Finding:
    switches = BY_RULE.get(finding.rule)
    if switches is None or finding.fix.try_ is not None or not finding.helps_now:
        return finding
    word = finding.rule
    if any(value is None for _, value in switches):
        value = value_of(finding)
        if value is None:
            return finding
        word = f"{word}={value}"
    fix = msgspec.structs.replace(finding.fix, try_=trying(word))
    changed: Finding = msgspec.structs.replace(finding, fix=fix)
    return changed

"""What the demo's script says of itself, and a prediction held against it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from underfed.diagnosis import Diagnosis, Finding

_DONE = re.compile(r"^done: (\d+) steps, ([0-9.]+) ms a step after the first \d+, loss (\S+)$")
_WORKERS = re.compile(r"\bnum_workers=(\d+)\b")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The last line of the script: mean wall clock of a step in ms over its settled part, and the last loss as text."""

    steps: int
    ms: float
    loss: str


def timing_of(output: str) -> Timing | None:
    """Return what the script measured itself, from its output; None where it did not get to the end."""
    for line in reversed(output.splitlines()):
        if found := _DONE.match(line):
            return Timing(steps=int(found[1]), ms=float(found[2]), loss=found[3])
    return None


def advised_workers(diagnosis: Diagnosis) -> tuple[int, Finding] | None:
    """Return the number of workers that the first helpful finding to name one asks for, and that finding."""
    for finding in diagnosis.findings:
        if not finding.helps_now:
            continue
        for text in (finding.fix.code, finding.fix.text):
            if found := _WORKERS.search(text or ""):
                return int(found[1]), finding
    return None


def comparison(before: Timing, after: Timing, finding: Finding) -> list[str]:
    """Return the lines that hold the predicted gain of a finding against what the script measured."""
    measured = before.ms / after.ms
    lines = [
        f"before  {before.ms:8.2f} ms a step  loss {before.loss}",
        f"after   {after.ms:8.2f} ms a step  loss {after.loss}",
        f"gain    {_predicted(finding)}",
        f"        measured {measured:.2f}x, {_judged(measured, finding)}",
    ]
    if before.loss == after.loss:
        lines.append("The last loss is the same in every digit: the faster run trains the same model.")
    else:
        lines.append("The last loss differs: the faster run did not train on the same numbers.")
    return lines


def _predicted(finding: Finding) -> str:
    if finding.gain is None:
        return "not predicted"
    if finding.gain.expected is None:
        return f"predicted at most {finding.gain.at_most:.2f}x"
    low, high = finding.gain.expected
    return f"predicted {low:.2f}x to {high:.2f}x, at most {finding.gain.at_most:.2f}x"


def _judged(measured: float, finding: Finding) -> str:
    if finding.gain is None:
        return "with nothing to hold it against"
    if measured > finding.gain.at_most:
        return "which is above what was said to be possible"
    if finding.gain.expected is None:
        return "within the bound"
    low, high = finding.gain.expected
    if measured < low:
        return f"{100 * (1 - measured / low):.1f} % below the predicted range"
    if measured > high:
        return f"{100 * (measured / high - 1):.1f} % above the predicted range, within the bound"
    return "within the predicted range"

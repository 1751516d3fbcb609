"""Score the diagnosis against labelled recordings: `python bench/score/run.py [--write docs/accuracy.md]`.

A first rule is a hit where the label lists it; a bound holds where the true gain is not above `at_most`; the error of a
range is that of its geometric middle. Exit code 1 where a bound of the step is wrong or a healthy run draws an alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.diagnosis import Diagnosis, Finding
from underfed.recording.read import read

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "h200"
RECORDED = "2026-12-02, one NVIDIA H200 (driver 580.159.04), 16 CPU cores, torch 2.11.0+cu130"


@dataclass(frozen=True)
class Row:
    """One labelled recording and what the diagnosis says of it."""

    name: str
    label: dict[str, Any]
    found: Diagnosis

    @property
    def first(self) -> Finding | None:
        """The finding that is shown first, where one can help now."""
        return next((finding for finding in self.found.findings if finding.helps_now), None)

    @property
    def bound_right(self) -> bool:
        """Whether the bound is the label's."""
        return bool(self.found.verdict.bound == self.label["class"])

    @property
    def hit(self) -> bool:
        """Whether the first finding is one that the label accepts: none, for a healthy run."""
        if not self.label["rules"]:
            return self.first is None
        return self.first is not None and acceptable(self.first, self.label["rules"])

    @property
    def gain(self) -> tuple[float, float, float, float] | None:
        """True gain, expected range and bound of the finding that names the planted fault; None where not scored."""
        finding = next((one for one in self.found.findings if acceptable(one, self.label["rules"])), None)
        if not self.label["gain"] or finding is None or finding.gain is None or finding.gain.expected is None:
            return None
        return (self.label["gain"], *finding.gain.expected, finding.gain.at_most)


def acceptable(finding: Finding, rules: list[str]) -> bool:
    """Tell whether the label accepts a rule; `X:word` is any rule outside the numbering with that word in its name."""
    words = [rule[2:] for rule in rules if rule.startswith("X:")]
    return finding.rule in rules or (finding.rule.startswith("X") and any(word in finding.name for word in words))


def rows() -> list[Row]:
    """Diagnose every labelled recording."""
    labels = json.loads((FIXTURES / "labels.json").read_text(encoding="utf-8"))
    return [
        Row(name, label, diagnose(read(FIXTURES / f"{name}.before"), read_window)) for name, label in labels.items()
    ]


def table(scored: list[Row]) -> str:
    """Make the page's table and totals."""
    lines = [
        "| scenario | class | bound | first rule | accepted | expected gain | at most | true gain | result |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in scored:
        first, gain = row.first, row.gain
        expected = f"{gain[1]:.2f} to {gain[2]:.2f}" if gain else "-"
        most = f"{gain[3]:.2f}" if gain else "-"
        true = f"{row.label['gain']:.2f}" if row.label["gain"] else "-"
        named = f"{first.rule} {first.name}" if first else "none"
        result = "hit" if row.hit and row.bound_right else "miss"
        accepted = "/".join(row.label["rules"]) or "none"
        bound = row.found.verdict.bound
        cells = [row.name, row.label["class"], bound, named, accepted, expected, most, true, result]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *totals(scored)])


def totals(scored: list[Row]) -> list[str]:
    """Sum up, one line a figure."""
    planted = [row for row in scored if row.label["rules"]]
    healthy = [row for row in scored if not row.label["rules"]]
    gains = [row.gain for row in scored if row.gain]
    errors = [abs((low * high) ** 0.5 - true) / true for true, low, high, _ in gains]
    inside = sum(low <= true <= high for true, low, high, _ in gains)
    held = sum(true <= most for true, _, _, most in gains)
    found = [
        f"- bound right: {sum(row.bound_right for row in scored)} of {len(scored)}",
        f"- planted cause first: {sum(row.hit for row in planted)} of {len(planted)}",
        f"- alarms on healthy runs: {sum(not row.hit for row in healthy)} of {len(healthy)}",
    ]
    if gains:
        found += [
            f"- true gain not above `at_most`: {held} of {len(gains)}",
            f"- true gain inside the expected range: {inside} of {len(gains)}",
            f"- median error of the middle of the range: {100 * median(errors):.0f} %",
        ]
    return found


def page(scored: list[Row]) -> str:
    """Make the documentation page."""
    return f"""# How accurate the diagnosis is

Generated by `python bench/score/run.py --write docs/accuracy.md` from the recordings under `tests/fixtures/h200`.
Recorded {RECORDED}.

{table(scored)}

The true gain is that of the planted fix, measured without a profiler on the same kind of machine at another time.
Thresholds and gains were set with most of these recordings in sight, so they are no independent sample. The gains of
the loader's rules are also tested against a simulated loader (`tests/playbook/test_loader_model.py`); only those of T7
and T8 were mended by it. `act_ckpt` was recorded before the agent noted activation checkpointing: its cause is not
in the recording, and counts as a miss.
"""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, help="write the page to this file instead of printing the table")
    given = parser.parse_args()
    scored = rows()
    if given.write:
        given.write.write_text(page(scored), encoding="utf-8")
    else:
        print(table(scored))
    wrong = [row for row in scored if not row.bound_right or (not row.label["rules"] and row.first is not None)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""What `underfed try` prints."""

from __future__ import annotations

from underfed.report.output import unchecked
from underfed.report.page import Line
from underfed.report.words import milliseconds, numerics_words
from underfed.trial.records import Arm, Trial

_MARK = {"faster": "green", "slower": "red", "crashed": "bold red", "no-change": "yellow"}


def trial_lines(trial: Trial) -> list[Line]:
    """Return the page of a trial."""
    lines: list[Line] = []
    if trial.baseline_step_ms is not None:
        floor = f"; runs of it differ by {100 * (trial.noise_floor - 1):.1f} %" if trial.noise_floor else ""
        device = f" on {trial.device}" if trial.device else ""
        cost = trial.baseline_cost_per_1000_steps
        money = f"; {cost:.4g} for 1,000 steps" if cost is not None else ""
        lines += unchecked(f"Baseline: {milliseconds(trial.baseline_step_ms)} a step{device}{floor}{money}")
    for arm in trial.arms:
        lines += [[("", "")], *_arm_lines(arm)]
    if trial.limits:
        lines += [[("", "")], [("What this cannot show", "bold")]]
        for limit in trial.limits:
            lines += unchecked(limit, first="  - ", rest="    ")
    lines += [[("", "")]]
    lines += unchecked(f"Runs, with their output: {trial.folder}")
    return lines


def _arm_lines(arm: Arm) -> list[Line]:
    failed = arm.truth is not None and arm.truth.ok is False
    style = "bold red" if failed else _MARK.get(arm.outcome, "")
    head = f"{arm.name}: {'FAILED, whatever its speed: ' if failed else ''}{arm.text}"
    lines = unchecked(head, style)

    def more(label: str, text: str) -> None:
        lines.extend(unchecked(text, first=f"  {label:<9} ", rest="    "))

    if arm.step_ms is not None and arm.outcome != "not-applied":
        cost = f"; {arm.cost_per_1000_steps:.4g} for 1,000 steps" if arm.cost_per_1000_steps is not None else ""
        more("step", f"{milliseconds(arm.step_ms)}{cost}")
    if arm.predicted is not None:
        more("predicted", f"{arm.predicted[0]:.2f}x to {arm.predicted[1]:.2f}x, at most {arm.at_most or 0:.2f}x")
    elif arm.at_most is not None:
        more("predicted", f"at most {arm.at_most:.2f}x")
    if arm.extra_start_s is not None and arm.outcome in ("faster", "slower", "no-change"):
        pays = arm.pays_back_after_steps
        after = f", earned back after {pays} steps" if pays and arm.extra_start_s > 0 else ""
        more("start-up", f"{arm.extra_start_s:+.1f} s{after}")
    for text in arm.acted[:4]:
        more("changed", text)
    for text in arm.refused[:2]:
        more("left", text)
    if arm.truth is not None:
        verdict = {True: "true", False: "NOT TRUE", None: "cannot tell"}[arm.truth.ok]
        more("numbers", f"{verdict} ({arm.truth.numerics}): {arm.truth.text}")
        words = numerics_words(arm.truth.numerics)
        if words is not None and arm.truth.ok:
            more("", words)
    if arm.edit:
        more("edit", arm.edit)
    for text in arm.output:
        lines.extend(unchecked(text, first="  | ", rest="  | ", most=2))
    return lines

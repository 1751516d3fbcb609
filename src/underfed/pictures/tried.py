"""A trial's folder: what `underfed try` measured, beside what its first run means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from underfed.diagnosis import Diagnosis, Finding, Observation
from underfed.errors import UsageError
from underfed.pictures.shapes import Chart, Section, Table, number
from underfed.report.text import clean
from underfed.trial.records import TRIAL, Arm, Ratio, Trial

if TYPE_CHECKING:
    from underfed.pictures.material import Material

_FILE = "trial.json"
#: The run without any change that a trial begins with; its recording is the one that is shown.
_FIRST = "00-first"
_MOST_BYTES = 16 << 20
_NUMBERS = {True: "true", False: "NOT TRUE", None: "cannot tell"}


def is_trial(folder: Path) -> bool:
    """Return whether a folder is what `underfed try --out` left."""
    return (folder / _FILE).is_file() and (folder / _FIRST).is_dir()


def read_trial(folder: Path) -> tuple[Trial, Path]:
    """Return a trial and the recording of its first run. Raises UsageError where it cannot be read."""
    file = folder / _FILE
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise UsageError(f"report: {clean(str(file))}: too large for a trial")
        trial = msgspec.json.decode(file.read_bytes(), type=Trial)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"report: {clean(str(file))}: cannot be read as a trial: {clean(str(error))}") from None
    if trial.schema != TRIAL:
        raise UsageError(f"report: {clean(str(file))}: {clean(trial.schema)} is no schema that this version knows")
    return trial, folder / _FIRST


def arm_of(trial: Trial | None, finding: Finding) -> Arm | None:
    """Return the change that was measured for a finding, None where there is none."""
    arms = trial.arms if trial is not None else ()
    return next((arm for arm in arms if arm.rule == finding.rule and arm.gain is not None), None)


def with_measured(diagnosis: Diagnosis, trial: Trial) -> Diagnosis:
    """Return the diagnosis with what was measured as the first evidence of each finding that was tried."""

    def seen(finding: Finding) -> Finding:
        arm = arm_of(trial, finding)
        if arm is None:
            return finding
        said = Observation(source="trial", text=f"{arm.name}, measured in {trial.pairs} runs each: {arm.text}")
        return msgspec.structs.replace(finding, evidence=[said, *finding.evidence])

    return msgspec.structs.replace(diagnosis, findings=[seen(finding) for finding in diagnosis.findings])


def ratio_words(gain: Ratio) -> str:
    """Return a measured gain in words."""
    return f"measured {gain.value:.3g}x ({gain.low:.3g} to {gain.high:.3g})"


def section(material: Material) -> Section:
    """Return the section about what was tried; empty where nothing was."""
    empty = Section(id="tried", title="Tried and measured")
    trial = material.trial
    if trial is None or not trial.arms:
        return empty
    rows: list[tuple[str | None, ...]] = [
        (
            clean(arm.name, ascii_only=False),
            clean(arm.text, ascii_only=False),
            number(arm.step_ms),
            f"{arm.gain.value:.3g}x ({arm.gain.low:.3g} to {arm.gain.high:.3g})" if arm.gain else "not measured",
            f"{arm.predicted[0]:.3g}x to {arm.predicted[1]:.3g}x" if arm.predicted else "-",
            _NUMBERS[arm.truth.ok] if arm.truth is not None else "not compared",
        )
        for arm in trial.arms
    ]
    table = Table(
        columns=("change", "what it did", "step, ms", "gain, 95 % interval", "predicted", "numbers"),
        rows=rows,
        names=frozenset({0}),
        caption="Changes against the run as it is, in runs that took turns",
    )
    says = f"{len(rows)} {'change' if len(rows) == 1 else 'changes'}, {trial.pairs} runs each"
    if trial.baseline_step_ms is not None:
        says += f"; as it is, a step takes {number(trial.baseline_step_ms)} ms"
    says += "." if trial.complete else "; interrupted before the end."
    chart = Chart(id="tried-table", title="What each change did", says=says, table=table, open=True)
    return Section(
        id=empty.id,
        title=empty.title,
        charts=[chart],
        notes=[clean(limit, ascii_only=False) for limit in trial.limits],
    )

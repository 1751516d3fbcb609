"""`underfed try`: switch a fix on from outside, measure it against the baseline, and judge whether it stays true."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.trial.records import Arm
    from underfed.trial.session import Plan


def try_(
    *rules: str,
    steps: int = 60,
    pairs: int = 4,
    limit: float = 120.0,
    seed: int | None = None,
    price_per_hour: float | None = None,
    out: Path | None = None,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    command: Annotated[list[str], Parameter(parse=False)],
) -> int:
    """Try a fix without editing the script: `underfed try T4=8 -- python train.py` measures what it gains.

    The command is started several times, with and without the change in turns, and ended early each time, at a step
    boundary: what it does behind its loop is not reached, and what it writes before is written by every run.

    For example:

        underfed try T4=8 -- python train.py
        underfed try T4 T5 --pairs 5 --out trial -- python train.py

    Parameters
    ----------
    rules
        RULE[=VALUE] or SWITCH[=VALUE], such as T4=8, T12 or prefetch_factor=4. Several: each alone, then together.
    steps
        Steady steps that a run is measured for, at least.
    pairs
        Runs of each arm; more of them show smaller differences.
    limit
        Seconds after which a run is ended, whatever it has.
    seed
        Seeds torch, NumPy and random at the start of every run, so that losses can be compared.
    price_per_hour
        Price of the machine, to say what 1,000 steps cost.
    out
        Folder for the runs: new or empty. Default: a new one below $TMPDIR/underfed-UID.
    json
        File for the trial as JSON; `-` is stdout, in place of the page.
    """
    from underfed.errors import UNMEASURED, UsageError
    from underfed.report.output import check_json, deliver
    from underfed.trial.conclude import needs_edit
    from underfed.trial.knobs import parse
    from underfed.trial.records import Trial, to_json
    from underfed.trial.session import Plan
    from underfed.trial.show import trial_lines

    if not command:
        raise UsageError("try: no command; write it after two dashes: underfed try T4=8 -- python train.py")
    if not rules:
        raise UsageError("try: no rule; name what to try: underfed try T4=8 -- python train.py")
    if sys.platform != "linux":
        raise UsageError("try: works on Linux only")
    for name, value, least in (("steps", steps, 5), ("pairs", pairs, 2)):
        if value < least:
            raise UsageError(f"try: --{name} {value}: give a number from {least} on")
    if not 1 <= limit < 1e6:
        raise UsageError(f"try: --limit {limit:g}: give seconds from 1 on")
    if price_per_hour is not None and not 0 <= price_per_hour < 1e9:
        raise UsageError(f"try: --price-per-hour {price_per_hour:g}: give a price from 0 on")
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"try: --seed {seed}: give a number from 0 on")
    check_json("try", json)
    changes = parse(rules)
    edits = [needs_edit(change) for change in changes if not change.switches]
    plan = Plan(
        command=command,
        changes=[change for change in changes if change.switches],
        pairs=pairs,
        steps=steps,
        limit_s=limit,
        seed=seed,
    )
    if not plan.changes:
        trial = Trial(folder="none: nothing was run", pairs=pairs, arms=tuple(edits))
        deliver("try", trial_lines(trial), to_json(trial), json)
        return UNMEASURED
    return _measured(plan, edits, price_per_hour, out, json)


def _measured(plan: Plan, edits: list[Arm], price: float | None, out: Path | None, json: Path | None) -> int:
    import msgspec

    from underfed.errors import FINDINGS, OK, UNMEASURED
    from underfed.recording.place import new_folder
    from underfed.report.output import deliver
    from underfed.trial.conclude import conclude
    from underfed.trial.process import end_as_by_ctrl_c
    from underfed.trial.records import to_json
    from underfed.trial.session import Session, progress
    from underfed.trial.show import trial_lines

    end_as_by_ctrl_c()
    folder = new_folder(out)
    session = Session(plan=plan, folder=folder, say=progress)
    progress(f"runs go to {folder}; each starts the command anew and ends it early")
    code = OK
    try:
        session.run()
    except KeyboardInterrupt:
        code = 130
        progress("interrupted; what was measured so far:")
    trial = conclude(session, price)
    trial = msgspec.structs.replace(trial, arms=(*trial.arms, *edits))
    (folder / "trial.json").write_bytes(to_json(trial))
    deliver("try", trial_lines(trial), to_json(trial), json)
    if code:
        return code
    if any(arm.outcome == "crashed" or (arm.truth is not None and arm.truth.ok is False) for arm in trial.arms):
        return FINDINGS
    return OK if any(arm.outcome in ("faster", "slower", "no-change") for arm in trial.arms) else UNMEASURED

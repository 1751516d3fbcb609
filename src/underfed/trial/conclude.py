"""From the runs of a session to the Trial record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec

from underfed.trial import stats
from underfed.trial.knobs import Change
from underfed.trial.measured import Measured
from underfed.trial.once import Done
from underfed.trial.records import Arm, Outcome, Ratio, Run, Trial
from underfed.trial.session import BASE, Session
from underfed.trial.truth import judge

#: Rare long steps are mentioned from this share of the time on.
RARE = 0.05


def conclude(session: Session, price_per_hour: float | None) -> Trial:
    """Return what the runs so far say; arms without a pair of runs are `not-measured`."""
    base = [done.measured for done in session.of(BASE)]
    values = [value for run in base if (value := run.step_ms) is not None]
    step = median(values) if values else None
    floors = [run.blocks for run in base if run.blocks]
    device = next((run.device for run in base if run.device), None)
    arms = [_arm(session, change, price_per_hour) for change in session.arms or session.plan.changes]
    return Trial(
        folder=str(session.folder),
        device=device or ("CPU" if base else None),
        complete=session.complete,
        seed=session.plan.seed,
        pairs=session.plan.pairs,
        baseline_step_ms=_rounded(step),
        baseline_cost_per_1000_steps=_cost(step, price_per_hour),
        noise_floor=round(math.exp(stats.noise_floor(floors)), 5) if len(floors) > 1 else None,
        arms=tuple(arms),
        runs=tuple(run_record(done) for done in session.runs),
        limits=tuple(_limits(session)),
    )


def _arm(session: Session, change: Change, price: float | None) -> Arm:
    base, mine = session.of(BASE), session.of(change.name)
    finding = session.finding(change) if change.rule else None
    gain = finding.gain if finding is not None else None
    crashed = next((done for done in mine if done.crashed), None)
    acted = sorted({text for done in mine for _, text in done.measured.acted})
    refused = sorted({text for done in mine for _, text in done.measured.refused})
    pairs = list(zip(base, mine, strict=False))
    effect = stats.effect([a.measured.blocks for a, _ in pairs], [b.measured.blocks for _, b in pairs])
    truth = None
    if mine and crashed is None and acted:
        truth = judge(
            change.numerics,
            *session.compared(change),
            seeded=session.plan.seed is not None,
            reference=session.reference.measured if session.reference is not None else None,
            seeds=[done.measured for done in session.seeds],
        )
        if session.deterministic(change):
            truth = msgspec.structs.replace(truth, text=f"in deterministic mode, {truth.text}")
    outcome, text = _outcome(mine, crashed, acted, refused, effect)
    measured = effect if outcome in ("faster", "slower", "no-change") else None
    values = [value for done in mine if (value := done.measured.step_ms) is not None]
    step = median(values) if values and crashed is None else None
    extra, pays = _pay_back([done.measured for done in base], [done.measured for done in mine], measured)
    return Arm(
        name=change.name,
        rule=change.rule,
        outcome=outcome,
        text=text,
        step_ms=_rounded(step),
        gain=Ratio(value=measured.ratio, low=measured.low, high=measured.high) if measured else None,
        detectable=measured.detectable if measured else None,
        predicted=gain.expected if gain is not None else None,
        at_most=gain.at_most if gain is not None else None,
        extra_start_s=_rounded(extra) if measured else None,
        pays_back_after_steps=pays,
        cost_per_1000_steps=_cost(step, price),
        acted=tuple(acted),
        refused=tuple(refused),
        truth=truth,
        edit=change.edit if outcome == "not-applied" else None,
        exit_code=crashed.ended.code if crashed is not None else None,
        output=tuple(crashed.tail()) if crashed is not None else (),
    )


def needs_edit(change: Change) -> Arm:
    """Return the arm of a rule that cannot be switched from outside."""
    text = "needs your edit: this cannot be switched from outside the program"
    return Arm(name=change.name, rule=change.rule, outcome="needs-edit", text=text, edit=change.edit)


def _outcome(
    mine: Sequence[Done],
    crashed: Done | None,
    acted: Sequence[str],
    refused: Sequence[str],
    effect: stats.Effect | None,
) -> tuple[Outcome, str]:
    if crashed is not None:
        return "crashed", f"the program ended with exit code {crashed.ended.code} with this change"
    if not mine:
        return "not-measured", "not run yet"
    if not acted:
        why = refused[0] if refused else "the program has nothing that it would change, or is set so already"
        return "not-applied", f"had nothing to act on: {why}"
    if effect is None:
        few = "it made no steps" if not any(done.measured.blocks for done in mine) else "fewer than two pairs of runs"
        return "not-measured", f"not measured: {few}"
    if effect.call == "none":
        least = stats.unseen(effect.detectable)
        if least is None:
            return "not-measured", f"{stats.DISTURBED}; run it with nothing beside it, or with more --pairs"
        return "no-change", f"no measurable change; {least}"
    if effect.call == "faster":
        return "faster", f"{effect.ratio:.2f}x as fast ({effect.low:.2f}x to {effect.high:.2f}x)"
    return "slower", f"slower: {1 / effect.ratio:.2f} times as long ({1 / effect.high:.2f} to {1 / effect.low:.2f})"


def _pay_back(
    base: Sequence[Measured], mine: Sequence[Measured], effect: stats.Effect | None
) -> tuple[float | None, int | None]:
    """Return the extra seconds before the steady part, and the steps after which they are earned back."""
    before = [run.before_steady_s for run in base if run.before_steady_s is not None]
    after = [run.before_steady_s for run in mine if run.before_steady_s is not None]
    steps = [run.step_ms for run in base if run.step_ms], [run.step_ms for run in mine if run.step_ms]
    if not before or not after or not all(steps):
        return None, None
    extra = median(after) - median(before)
    saved = (median(steps[0]) - median(steps[1])) * 1e-3
    if effect is None or effect.call != "faster" or saved <= 0:
        return extra, None
    return extra, max(0, round(extra / saved))


def run_record(done: Done) -> Run:
    """Return the record of one run."""
    seen = done.measured
    return Run(
        arm=done.arm,
        folder=done.folder.name,
        code=done.ended.code,
        steps=len(seen.walls),
        warmup_steps=seen.warmup,
        step_ms=_rounded(seen.step_ms),
        mean_step_ms=_rounded(seen.mean_ms),
        before_steady_s=_rounded(seen.before_steady_s),
        ended_early=done.ended.asked or seen.ended_early,
        marks=tuple(seen.marks),
    )


def _limits(session: Session) -> list[str]:
    limits = []
    if not session.complete:
        limits.append("the trial was interrupted: figures rest on the runs before that")
    marked = sum(bool(done.measured.marks) for done in session.runs)
    if marked:
        limits.append(f"{marked} of {len(session.runs)} runs were disturbed; the marks of each say by what")
    rare = [
        1 - step / mean
        for done in session.of(BASE)
        if (step := done.measured.step_ms) and (mean := done.measured.mean_ms)
    ]
    if rare and median(rare) > RARE:
        limits.append(
            f"rare long steps (checkpoints, validation, epochs) take {100 * median(rare):.0f} % of the baseline's time "
            "and are not in the ratio, so the whole run gains less"
        )
    if len(session.arms) > 1:
        limits.append(f"{len(session.arms)} changes were judged at 95 % each: one of 20 calls is chance")
    return limits


def _cost(step_ms: float | None, price: float | None) -> float | None:
    return None if step_ms is None or price is None else float(f"{step_ms / 3.6e6 * 1000 * price:.4g}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")

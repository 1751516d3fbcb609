"""From the runs of a search to its record: the curve, the choice, the reason and the line for the script."""

from __future__ import annotations

import math
from collections.abc import Sequence

from underfed.compare import noise
from underfed.trial.conclude import run_record
from underfed.trial.once import Done
from underfed.trial.records import Ratio
from underfed.trial.stats import DISTURBED, unseen
from underfed.tune.model import Setting
from underfed.tune.records import Chosen, Outcome, Point, Tuning
from underfed.tune.search import WORTH, State
from underfed.tune.session import Search, Tried


def conclude(search: Search) -> Tuning:
    """Return what the runs so far say; without a first run that made steps, nothing is chosen."""
    base = search.tried[0] if search.tried else None
    state = search.state
    best = search.at(state.best().setting) if state is not None else None
    chosen, difference, reason = _choice(search, base, best)
    evidence = search.evidence
    loader = evidence.loader if evidence is not None else None
    step = _interval(base.runs)[0] if base is not None else None
    return Tuning(
        folder=str(search.folder),
        device=(evidence.device_name or "CPU") if evidence is not None else None,
        complete=search.complete,
        seed=search.plan.seed,
        budget_s=search.plan.budget_s,
        spent_s=round(search.spent, 1),
        cpus=state.model.cpus if state is not None else None,
        memory_limit=search.limit,
        base_ms=_rounded(step),
        points=(*(_point(search, one) for one in search.tried), *_left_out(state)),
        chosen=chosen,
        choice=best.setting.name() if chosen == "better" and best else None,
        gain=_ratio(difference) if chosen == "better" else None,
        reason=reason,
        line=line(best.setting, base.setting) if chosen == "better" and best and base else None,
        where=loader.made_at if loader is not None else None,
        runs=tuple(run_record(done) for done in search.order),
        limits=tuple(_limits(search, confirmed=chosen != "better" or _in_turns(base, best))),
    )


def _choice(search: Search, base: Tried | None, best: Tried | None) -> tuple[Chosen, noise.Difference | None, str]:
    state = search.state
    if base is None or best is None or state is None:
        return "nothing", None, "the command was not measured"
    own = state.seen[0]
    if best is base:
        wait = own.feed.wait + own.feed.border if own.feed is not None else 0.0
        share = 100 * wait / own.step if own.step else 0.0
        if wait < WORTH * (own.step or 0.0):
            return "keep", None, f"the loop is fed already: input takes {share:.0f} % of its step"
        why = "; ".join(f"workers={number} {text}" for number, text in sorted(state.not_run.items())[:1])
        text = "nothing that was run is faster than what the script has"
        if len(search.tried) == 1:
            text = "no other setting promises enough to be run" if search.complete else "no other setting was run"
        return "keep", None, f"{text}{'; ' + why if why else ''}"
    difference = _difference(base, best)
    if difference is None or difference.call != "faster":
        text = "no setting is faster than the script's own beyond the noise"
        if difference is not None:
            least = unseen(difference.detectable)
            text = f"{text} ({least})" if least else f"{DISTURBED}; tune with nothing beside it"
        return "keep", difference, text
    return "better", difference, _reason(state, best)


def _reason(state: State, best: Tried) -> str:
    seen = next(one for one in reversed(state.seen) if one.setting == best.setting)
    model = state.model
    wait = seen.feed.wait + seen.feed.border if seen.feed is not None else None
    if wait is not None and seen.step and wait < 2 * WORTH * seen.step:
        text = f"it feeds the loop, which waits for input for {100 * wait / seen.step:.0f} % of its step now"
    elif model.cpus and not model.waits and model.floor(best.setting.workers) > (1 + WORTH) * model.rest:
        text = (
            f"a batch takes {model.fetches * model.cpu:.3g} ms of CPU time, and there are {model.cpus:g} CPUs: more "
            "workers find none free"
        )
    else:
        text = "it is the fastest of what was run"
    ruled = [f"workers={number} {why}" for number, why in sorted(state.not_run.items())[:1]]
    return "; ".join([text, *ruled])


def _difference(base: Tried, best: Tried) -> noise.Difference | None:
    """Base against choice: of the runs in turns where there are some of both, else of all."""
    one, two = (base.confirmed, best.confirmed) if _in_turns(base, best) else (base.runs, best.runs)
    return noise.difference(_values(one), _values(two))


def _in_turns(base: Tried | None, best: Tried | None) -> bool:
    return base is not None and best is not None and bool(base.confirmed and best.confirmed)


def _values(runs: Sequence[Done]) -> list[noise.Value]:
    return [value for done in runs if (value := noise.value(done.measured.blocks)) is not None]


def _interval(runs: Sequence[Done]) -> tuple[float | None, float | None, float | None]:
    """The step over all runs of a setting, with what its own noise and the spread between runs allow."""
    values = _values(runs)
    if not values:
        return None, None, None
    centre = sum(one.log for one in values) / len(values)
    error = math.sqrt(sum(one.error**2 for one in values)) / len(values)
    half = 1.96 * math.hypot(error, noise.BETWEEN / math.sqrt(len(values)))
    return math.exp(centre), math.exp(centre - half), math.exp(centre + half)


def _point(search: Search, tried: Tried) -> Point:
    step, low, high = _interval(tried.runs)
    base = search.tried[0]
    last = tried.runs[-1] if tried.runs else None
    acted = any(done.measured.acted for done in tried.runs)
    failed = tried.truth is not None and tried.truth.ok is False
    outcome: Outcome = "measured"
    text = tried.proposal.why if tried.proposal is not None else "the script as it is"
    if last is None:
        outcome, text = "not-run", "interrupted before it was measured"
    elif tried.watch is not None and tried.watch.over:
        outcome, text = "too-much-memory", tried.ended or ""
    elif tried.ended:
        outcome, text = "killed", tried.ended
    elif last.crashed:
        outcome, text = "crashed", f"the program ended with exit code {last.ended.code}"
    elif step is None or _ruled_out(search, tried):
        outcome, text = "no-steps", "it made too few steps in its time"
    elif tried is not base and not acted:
        outcome, text = "not-applied", "the program has nothing that it would change"
    elif failed and tried.truth is not None:
        text = f"NOT TRUE: {tried.truth.text}"
    bad = outcome in ("killed", "crashed", "too-much-memory", "no-steps")
    return Point(
        name=tried.setting.name(),
        switches=tried.setting.switches(base.setting),
        outcome=outcome,
        text=text,
        predicted_ms=_rounded(tried.proposal.predicted) if tried.proposal is not None else None,
        step_ms=None if bad else _rounded(step),
        low_ms=None if bad else _rounded(low),
        high_ms=None if bad else _rounded(high),
        runs=len(tried.runs),
        memory_predicted=tried.needed,
        memory=tried.watch.total or None if tried.watch is not None else None,
        truth=tried.truth,
        output=tuple(last.tail()) if bad and last is not None else (),
    )


def _ruled_out(search: Search, tried: Tried) -> bool:
    seen = search.state.seen if search.state is not None else []
    return any(one.setting == tried.setting and one.step is None for one in seen)


def _left_out(state: State | None) -> list[Point]:
    """Settings that would not fit into memory: named, and not run."""
    found = []
    for number, why in sorted(state.not_run.items()) if state is not None else ():
        setting = Setting(workers=number)
        needed = state.room.predict(number) if state is not None else None
        found.append(
            Point(
                name=setting.name(),
                switches=(("workers", str(number)),),
                outcome="not-run",
                text=f"not run: {why}",
                memory_predicted=needed,
            )
        )
    return found


def line(setting: Setting, base: Setting) -> str:
    """Return what to write into the script for a setting."""
    words = [f"num_workers={setting.workers}"] if setting.workers != base.workers else []
    if setting.prefetch is not None:
        words.append(f"prefetch_factor={setting.prefetch}")
    if setting.persistent:
        words.append("persistent_workers=True")
    if setting.pin:
        words.append("pin_memory=True")
    parts = [f"DataLoader(..., {', '.join(words)})"] if words else []
    if setting.pin:
        parts.append("batch.to(device, non_blocking=True)")
    if setting.threads is not None:
        parts.append(f"torch.set_num_threads({setting.threads})")
    return "; ".join(parts)


def _limits(search: Search, *, confirmed: bool) -> list[str]:
    limits = []
    if not search.complete:
        limits.append("the search did not come to its end: figures rest on the runs before that")
    if not confirmed:
        limits.append(
            "the choice was not run in turns with the script's own settings: part of its gain may be files that the "
            "first run had brought into memory, or luck; give a larger --budget"
        )
    marked = sum(bool(done.measured.marks) for done in search.order)
    if marked:
        limits.append(f"{marked} of {len(search.order)} runs were disturbed; the marks of each say by what")
    if search.limit is None:
        limits.append("how much memory there is could not be read: nothing was held against it")
    elif any(tried.setting.workers for tried in search.tried):
        limits.append("workers grow as they touch what they share with their parent: runs this short see a part of it")
    loader = search.evidence.loader if search.evidence is not None else None
    if loader is not None and loader.length is not None and not search.by_epochs:
        limits.append("each run saw too few epochs to include what workers cost at their start")
    return limits


def _ratio(found: noise.Difference | None) -> Ratio | None:
    if found is None:
        return None
    value, low, high = (float(f"{one:.6g}") for one in (found.ratio, found.low, found.high))
    return Ratio(value=value, low=low, high=high)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")

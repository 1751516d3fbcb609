"""Whether a change left the training true: losses, gradients, batches and weights of both arms, by its class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from underfed.diagnosis import Numerics
from underfed.trial.measured import Measured
from underfed.trial.records import Numbers, Truth

#: Relative tolerances. The first loss comes from equal weights and an equal batch, so only rounding can part it:
#: 1e-5 is ten times torch.testing's for one float32 operation, since a forward pass has many; 16-bit formats have
#: torch.testing's 1.6e-2 of bfloat16. Later losses part further, since training multiplies a difference: 1e-3 is what
#: PyTorch's own benchmark suite allows a training step.
FIRST_REORDER, FIRST_PRECISION = 1e-5, 1.6e-2
LATER_REORDER, LATER_STEPS = 1e-3, 50

#: Two orders of adding round differently, and training makes more of it: how much further than the baseline a change
#: may lie from the same training in float64, and what is as good as equal. A narrower format is much further off.
REFERENCE_FACTOR, REFERENCE_LEAST = 4.0, 1e-7

#: What the norm of the first gradients, from equal weights and an equal batch, may change by with a change of
#: precision. Rounding to 16 bits parts it by some percent at the most (a choice: a norm adds many that are rounded up
#: or down); gradients that fall below the smallest number of a format part it by all of it.
GRADIENT_PRECISION = 0.1
#: Norms as good as equal to those of float64: some roundings of float32.
GRADIENT_LEAST = 1e-6

#: Steps behind which a drift of the loss is looked for, at least.
FEWEST_FOR_DRIFT = 20


_Said = Callable[[Numbers, bool | None, str], Truth]


def needs_reference(numerics: Numerics, base: Sequence[Measured], changed: Sequence[Measured]) -> bool:
    """Whether a run in float64 would say more of this change than its losses do."""
    a, b = [run for run in base if run.losses], [run for run in changed if run.losses]
    if numerics != "reorder" or not a or not b:
        return False
    count = min(len(run.losses) for run in (*a, *b))
    itself = all(_same(a[0], run, count) for run in a[1:])
    return itself and not all(_same(a[0], run, count) for run in b) and _batches(a, b) != "differ"


def needs_seeds(numerics: Numerics, base: Sequence[Measured], changed: Sequence[Measured]) -> bool:
    """Whether runs of the baseline with other seeds would say whether the drift of this change's losses is much."""
    a, b = [run for run in base if run.losses], [run for run in changed if run.losses]
    if numerics != "precision" or not a or not b or not repeats(a) or _batches(a, b) == "differ":
        return False
    count = min(len(run.losses) for run in (*a, *b))
    if count < FEWEST_FOR_DRIFT or any(_broken(run, count) for run in (*a, *b)):
        return False
    drift, noise = _drift(a[0], b[0], count)
    return abs(drift) > noise and (_gaps(a[0], b[0], 1)[0] or 0.0) <= FIRST_PRECISION


def repeats(runs: Sequence[Measured]) -> bool:
    """Whether runs of one arm have equal losses, bit for bit, as far as all of them go."""
    seen = [run for run in runs if run.losses]
    count = min((len(run.losses) for run in seen), default=0)
    return bool(seen) and all(_same(seen[0], run, count) for run in seen[1:])


def strays(base: Sequence[Measured]) -> bool:
    """Whether the baseline's runs part by rounding alone: equal at the start, so that deterministic mode may help.

    On a GPU even the first loss may be one of 16 bits, and come from another algorithm each time.
    """
    seen = [run for run in base if run.losses]
    if len(seen) < 2 or repeats(seen):
        return False
    most = FIRST_PRECISION if seen[0].device else FIRST_REORDER
    return all((_gaps(seen[0], run, 1)[0] or 0.0) <= most for run in seen[1:])


def judge(
    numerics: Numerics,
    base: Sequence[Measured],
    changed: Sequence[Measured],
    *,
    seeded: bool,
    reference: Measured | None = None,
    seeds: Sequence[Measured] = (),
) -> Truth:
    """Judge a change's numbers by its class; several runs an arm show whether the program repeats itself.

    `reference` is a run of the baseline in float64, where there is one, `seeds` are some of it with other seeds.
    """
    a, b = [run for run in base if run.losses], [run for run in changed if run.losses]
    if numerics == "semantic":
        text = "a different training: judge it by where its loss ends, not by its speed"
        return Truth(numerics=numerics, numbers="other-training", ok=None, text=text)
    if not a or not b:
        return Truth(
            numerics=numerics,
            numbers="not-comparable",
            ok=None,
            text="no loss was seen: no backward() of the training thread",
        )
    count = min(len(run.losses) for run in (*a, *b))
    batches = _batches(a, b)
    first, largest = _gaps(a[0], b[0], count)
    norms = _norms(a[0], b[0])
    gradient = max(map(_part, norms), default=None)

    def said(numbers: Numbers, ok: bool | None, text: str) -> Truth:
        return Truth(
            numerics=numerics,
            numbers=numbers,
            ok=ok,
            text=text,
            losses=count,
            first_gap=first,
            largest_gap=largest,
            gradients=len(norms),
            gradient_gap=gradient,
            batches=batches,
        )

    if any(_broken(run, count) for run in b) and not any(_broken(run, count) for run in a):
        return said("differ", False, "losses are no numbers (NaN or infinite) with the change, and finite without")
    if not all(_same(a[0], run, count) for run in a[1:]):
        return _unrepeatable(said, a, b, count, seeded)
    if all(_same(a[0], run, count) for run in b):
        also = f", and the norms of the first {len(norms)} gradients" if norms else ""
        return said("same", True, f"the first {count} losses are the same, bit for bit{also}")
    if numerics == "exact":
        return said("differ", False, _why_exact_differs(a[0], b[0], count, batches))
    if batches == "differ":
        return said("not-comparable", None, "the arms got different batches, so their losses cannot be compared")
    if numerics == "reorder":
        return _reorder(said, a[0], b[0], count=count, first=first, reference=reference)
    return _precision(said, a[0], b[0], count=count, first=first, norms=norms, seeds=seeds)


def _unrepeatable(said: _Said, a: Sequence[Measured], b: Sequence[Measured], count: int, seeded: bool) -> Truth:
    """The baseline differs from itself: only the size of the spread can be compared."""
    why = "the program is not deterministic" if seeded else "it sets no seed (try --seed 0), or is not deterministic"
    if len(a) < 3 or count < FEWEST_FOR_DRIFT:
        return said("not-comparable", None, f"the baseline's own losses differ from run to run: {why}")
    means = [_late_mean(run, count) for run in a]
    changed = [_late_mean(run, count) for run in b]
    centre, spread = sum(means) / len(means), max(means) - min(means)
    off = abs(sum(changed) / len(changed) - centre)
    if off <= spread:
        text = (
            f"the baseline's own losses differ from run to run ({why}); with the change they lie within that spread, "
            "which is a weak test"
        )
        return said("within-noise", None, text)
    text = (
        f"losses with the change lie {off / max(spread, 1e-300):.1f} times the baseline's own spread away from it, "
        f"over {count} steps; {why}"
    )
    return said("differ", False, text)


def _why_exact_differs(a: Measured, b: Measured, count: int, batches: str) -> str:
    at = next(n for n in range(count + 1) if n == count or a.losses[n] != b.losses[n]) + 1
    if at > count:
        if a.weights is not None and b.weights is not None and a.weights[0] != b.weights[0]:
            return f"the first {count} losses agree, but the weights after a few steps differ"
        if any(x != y for x, y in _norms(a, b)):
            return f"the first {count} losses agree, but the norms of the first gradients differ"
        return f"not every run with the change has the same {count} losses: it made the program unrepeatable"
    if batches == "differ":
        return (
            f"loss {at} differs because the batches do: samples that draw from a random generator get other numbers, "
            "or come in another order"
        )
    return f"loss {at} differs ({a.losses[at - 1]:.9g} became {b.losses[at - 1]:.9g}); this change should not touch it"


def _reorder(
    said: _Said, a: Measured, b: Measured, *, count: int, first: float | None, reference: Measured | None
) -> Truth:
    early = min(count, LATER_STEPS)
    held = _held_against(reference, a, b, early)
    if held is not None:
        mine, changed = held
        fine = changed <= max(REFERENCE_FACTOR * mine, REFERENCE_LEAST)
        what, near, far = "losses", mine, changed
        off = _norms_held(reference, a, b)
        if fine and off is not None and off[1] > max(REFERENCE_FACTOR * off[0], GRADIENT_LEAST):
            fine, what, (near, far) = False, "norms of the first gradients", off
        text = (
            f"over {early} steps the {what} lie {far:.1e} from those of the same training in float64, and "
            f"{near:.1e} without the change (another order of adding explains {REFERENCE_FACTOR:.0f} times that)"
        )
        truth = said("within-tolerance" if fine else "differ", fine, text)
        return msgspec.structs.replace(truth, baseline_off=mine, changed_off=changed)
    _, largest = _gaps(a, b, early)
    norms = _norms(a, b)
    gradient = max(map(_part, norms), default=0.0)
    fine = (first or 0.0) <= FIRST_REORDER and max(largest or 0.0, gradient) <= LATER_REORDER
    also = f", norms of the first {len(norms)} gradients by at most {gradient:.1e}" if norms else ""
    text = (
        f"losses differ by {first or 0:.1e} at the first step and by at most {largest or 0:.1e} over {early}{also} "
        f"(allowed for sums in another order: {FIRST_REORDER:.0e} and {LATER_REORDER:.0e})"
    )
    return said("within-tolerance" if fine else "differ", fine, text)


def _held_against(reference: Measured | None, a: Measured, b: Measured, steps: int) -> tuple[float, float] | None:
    """How far both arms lie from the reference; None where it is none: it ended early, or is another training (dropout
    may draw other numbers in float64), so that even the first loss is not the baseline's.
    """
    if reference is None or len(reference.losses) < steps or _broken(reference, steps):
        return None
    first, _ = _gaps(reference, a, 1)
    if first is None or first > FIRST_REORDER:
        return None
    return _off(reference, a, steps), _off(reference, b, steps)


def _norms_held(reference: Measured | None, a: Measured, b: Measured) -> tuple[float, float] | None:
    """The same of the norms of the first gradients, where all three runs have them."""
    if reference is None:
        return None
    mine, changed = _norms(reference, a), _norms(reference, b)
    numbers = [value for pair in (*mine, *changed) for value in pair]
    return (_apart(mine), _apart(changed)) if mine and changed and all(map(math.isfinite, numbers)) else None


def _off(reference: Measured, run: Measured, steps: int) -> float:
    """Distance of a run's losses from the reference's."""
    return _apart(list(zip(reference.losses[:steps], run.losses[:steps], strict=True)))


def _apart(pairs: Sequence[tuple[float, float]]) -> float:
    """Distance of the second numbers from the first, to the size of those: single ones may come near to zero."""
    return math.sqrt(sum((x - y) ** 2 for x, y in pairs) / max(sum(x * x for x, _ in pairs), 1e-300))


def _precision(
    said: _Said,
    a: Measured,
    b: Measured,
    *,
    count: int,
    first: float | None,
    norms: Sequence[tuple[float, float]],
    seeds: Sequence[Measured],
) -> Truth:
    if (first or 0.0) > FIRST_PRECISION:
        text = f"the first loss differs by {first:.1e}; {FIRST_PRECISION:.1e} is what 16-bit rounding explains"
        return said("differ", False, text)
    if norms and _part(norms[0]) > GRADIENT_PRECISION:
        before, after = norms[0]
        text = f"the norm of the first gradients became {after:.4g}, {before:.4g} without the change"
        return said("differ", False, f"{text}; rounding explains {GRADIENT_PRECISION:.0%}")
    if count < FEWEST_FOR_DRIFT:
        text = f"only {count} losses: too few to tell a drift; the first differs by {first or 0:.1e}"
        return said("not-comparable", None, text)
    drift, noise = _drift(a, b, count)
    text = f"over {count} steps the loss drifted by {drift:+.2e}; its own noise from step to step allows {noise:.2e}"
    curve = ". A whole loss curve still has to be compared"
    if abs(drift) <= noise:
        return said("within-noise", True, text + curve)
    drawn = _of_seeds(a, seeds, count)
    if drawn is None:
        return said("differ", False, text)
    count, spread = drawn
    drift, _ = _drift(a, b, count)
    text = f"over {count} steps the loss drifted by {drift:+.2e}; with other seeds it lies up to {spread:.2e} apart"
    fine = abs(drift) <= spread
    truth = said("within-noise" if fine else "differ", fine, text + curve if fine else text)
    return msgspec.structs.replace(truth, seeds_differ_by=spread)


def _drift(a: Measured, b: Measured, count: int) -> tuple[float, float]:
    """By how much the later half of the losses lies higher, and what their noise from step to step explains of it."""
    return _late_mean(b, count) - _late_mean(a, count), _step_noise(a.losses[count // 2 : count])


def _of_seeds(a: Measured, seeds: Sequence[Measured], count: int) -> tuple[int, float] | None:
    """Over how many steps runs with other seeds can be compared, and how far apart the later halves' means then are;
    None where none ran for long enough, or the seeds changed nothing.
    """
    others = [run for run in seeds if run.acted and len(run.losses) >= FEWEST_FOR_DRIFT]
    count = min((count, *(len(run.losses) for run in others)))
    others = [run for run in others if not _broken(run, count) and not _same(a, run, count)]
    if not others:
        return None
    means = [_late_mean(run, count) for run in (a, *others)]
    return count, max(means) - min(means)


def _step_noise(losses: Sequence[float]) -> float:
    """Twice the standard error of a mean of these losses, from how much neighbours differ (a trend drops out)."""
    jumps = [(y - x) ** 2 for x, y in pairwise(losses)]
    if not jumps:
        return 0.0
    return 2.0 * math.sqrt(sum(jumps) / len(jumps) / 2.0 / len(losses))


def _late_mean(run: Measured, count: int) -> float:
    late = run.losses[count // 2 : count]
    return sum(late) / len(late)


def _same(a: Measured, b: Measured, count: int) -> bool:
    """Equal bit for bit, NaN to NaN; and equal gradients and weights of the first steps, where both have theirs."""
    pairs = [*zip(a.losses[:count], b.losses[:count], strict=True), *_norms(a, b)]
    equal = all(x == y or (x != x and y != y) for x, y in pairs)  # noqa: PLR0124
    if a.weights is not None and b.weights is not None and a.weights[0] is not None and b.weights[0] is not None:
        return equal and a.weights[0] == b.weights[0]
    return equal


def _norms(a: Measured, b: Measured) -> list[tuple[float, float]]:
    """Norms of the gradients of the first steps, of each step that has one in both runs."""
    return [(x, y) for x, y in zip(a.gradients, b.gradients, strict=False) if x is not None and y is not None]


def _part(pair: tuple[float, float]) -> float:
    """Relative difference of two numbers; infinite where one of them is none."""
    x, y = pair
    if not (math.isfinite(x) and math.isfinite(y)):
        return 0.0 if not (math.isfinite(x) or math.isfinite(y)) else math.inf
    return abs(x - y) / max(abs(x), abs(y), 1e-300)


def _broken(run: Measured, count: int) -> bool:
    return any(not math.isfinite(value) for value in run.losses[:count])


def _gaps(a: Measured, b: Measured, count: int) -> tuple[float | None, float | None]:
    """Relative differences: of the first loss, and the largest of all."""
    gaps = [
        abs(x - y) / max(abs(x), abs(y), 1e-12)
        for x, y in zip(a.losses[:count], b.losses[:count], strict=True)
        if math.isfinite(x) and math.isfinite(y)
    ]
    return (gaps[0], max(gaps)) if gaps else (None, None)


def _batches(a: Sequence[Measured], b: Sequence[Measured]) -> Literal["same", "differ", "unknown"]:
    """Whether the first batches of both arms hold the same numbers in the same order."""
    count = min(len(run.batches) for run in (*a, *b))
    if count == 0 or any(value is None for run in (*a, *b) for value in run.batches[:count]):
        return "unknown"
    return "same" if len({tuple(run.batches[:count]) for run in (*a, *b)}) == 1 else "differ"

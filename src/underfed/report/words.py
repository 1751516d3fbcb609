"""Numbers and names as people read them; what is not known is `?`, never 0."""

from __future__ import annotations

import math

from underfed.diagnosis import Bound, Confidence, Diagnosis, Gain, Numerics, Subject

_BOUNDS: dict[Bound, str] = {
    "data": "data-bound",
    "host": "host-bound",
    "comms": "comms-bound",
    "unknown": "cannot tell",
}

_GLOSS: dict[Bound, str] = {
    "data": "the loop waits for its input",
    "host": "the device waits for the Python thread",
    "compute": "computing fills the step",
    "comms": "collectives hold up the step",
    "unknown": "the evidence does not settle it",
}

_NUMERICS: dict[Numerics, str | None] = {
    "exact": None,
    "reorder": "may change the last bits of results (sums in another order)",
    "precision": "changes the precision of results: check the loss curve",
    "semantic": "changes the training itself: check that you want that",
}

CONFIDENCE_STYLE: dict[Confidence, str] = {"high": "green", "medium": "yellow", "low": "red"}
BOUND_STYLE: dict[Bound, str] = {
    "data": "bold yellow",
    "host": "bold magenta",
    "compute": "bold green",
    "comms": "bold blue",
    "unknown": "bold red",
}


def has_gpu(subject: Subject) -> bool:
    """Return whether the device is known to be something other than the CPU."""
    return subject.device is not None and not subject.device.strip().lower().startswith("cpu")


def step_words(diagnosis: Diagnosis) -> str:
    """Return by what clock the step is known, in at most 28 columns: of a trace alone it may be an estimate."""
    estimated = any("an untraced one is estimated" in limit for limit in diagnosis.limits)
    if diagnosis.subject.kind == "trace" and estimated:
        return "estimated without profiler"
    return "wall clock, no profiler"


def device_words(subject: Subject) -> str:
    """Return what device time is on this device, in at most 28 columns."""
    if subject.device is None:
        return "the device is at work"
    return "the GPU computes or copies" if has_gpu(subject) else "forward, backward, optimizer"


def bound_words(bound: Bound, subject: Subject) -> str:
    """Return the bound in the user's words: `GPU-bound` where there is a GPU, `compute-bound` on a CPU-only run."""
    if bound == "compute":
        return "GPU-bound" if has_gpu(subject) else "compute-bound"
    return _BOUNDS[bound]


def gloss(bound: Bound) -> str:
    """Return what a bound means, in a few words."""
    return _GLOSS[bound]


def numerics_words(numerics: Numerics) -> str | None:
    """Return what a fix does to the training's numbers, or None where it leaves every bit alone."""
    return _NUMERICS[numerics]


def finite(value: float | None) -> float | None:
    """Return the value, or None where it is missing, not a number, or beyond anything a clock can have measured."""
    return value if value is not None and math.isfinite(value) and abs(value) <= 1e9 else None


def milliseconds(value: float | None) -> str:
    """Return a time in ms with three significant digits, for prose: `225 ms`, `1.13 ms`, `? ms`."""
    return f"{_significant(value)} ms"


def quantity(value: float | None, unit: str | None) -> str:
    """Return what follows a fact's text: `: 194 ms/step`; nothing for a fact that is none of a quantity."""
    if value is None:
        return ": not known" if unit else ""
    return f": {_significant(value)} {unit or ''}".rstrip()


def _significant(value: float | None) -> str:
    known = finite(value)
    if known is None:
        return "?"
    size = abs(known)
    if known == int(known):
        return f"{known:.0f}"
    return f"{known:.{0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3}f}"


def percent(part: float | None, whole: float | None) -> str:
    """Return a share of a step as whole percent, `?` where either is not known."""
    known, total = finite(part), finite(whole)
    return "? %" if known is None or total is None or total <= 0 else f"{100 * known / total:.0f} %"


def gain_words(gain: Gain | None) -> str:
    """Return `up to 4.1x, expect 3.2-3.8x`, or what of it is known."""
    if gain is None:
        return "gain not known"
    most = f"up to {_factor(gain.at_most)}x"
    if gain.expected is None:
        return most
    low, high = (_factor(value) for value in gain.expected)
    return f"{most}, expect {low}x" if low == high else f"{most}, expect {low}-{high}x"


def _factor(value: float) -> str:
    known = finite(value)
    if known is None:
        return "?"
    # Just above 1 the second decimal is the whole message; a factor is rounded to what it can carry elsewhere.
    return f"{known:.0f}" if known >= 100 else f"{known:.2f}" if known < 1.2 else f"{known:.1f}"


def count(value: int | None) -> str:
    """Return a count, `?` where it is not known or no count can be."""
    return "?" if value is None or not 0 <= value < 10**9 else str(value)

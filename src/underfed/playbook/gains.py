"""What a fix is worth: the step after one wait is gone, held against what binds next."""

from __future__ import annotations

from underfed.diagnosis import Gain
from underfed.playbook.evidence import Evidence


def floor_ms(evidence: Evidence) -> float:
    """The least a step can take however little the host waits: what the device computes.

    Copies do not count, since those that belong to the wait (of weights into a checkpoint, of a pageable batch) go away
    with it. On a CPU-only run nothing overlaps, so there is no floor.
    """
    return (evidence.step.compute_ms or 0.0) if evidence.on_gpu else 0.0


def slack(evidence: Evidence) -> float:
    """Part of the rest of a step that may be left of it once a long wait or stall is gone.

    On a CPU-only run what goes away also cooled the caches and took memory bandwidth, and other processes take their
    part of the CPUs: planted scripts' remaining steps were up to twice as fast without it. A GPU's work stays as it is.
    """
    return 1.0 if evidence.on_gpu else 0.5


def gain_between(evidence: Evidence, best_ms: float, likely_ms: tuple[float, float] | None = None) -> Gain:
    """Gain for a step that cannot get below `best_ms` and is likely to land between two values, all in ms.

    `at_most` is step / best; a likely step above the present one counts as no gain.
    """
    step = evidence.step_ms
    best = max(best_ms, 0.001 * step, 1e-6)
    at_most = max(1.0, step / best)
    if likely_ms is None:
        return Gain(at_most=round(at_most, 3))
    low, high = sorted(likely_ms)
    expected = (max(1.0, step / max(high, best)), max(1.0, step / max(low, best)))
    return Gain(at_most=round(max(at_most, expected[1]), 3), expected=(round(expected[0], 3), round(expected[1], 3)))


def gain_without(evidence: Evidence, saved_ms: float, *, spread: float = 0.15, exact: bool = False) -> Gain:
    """Gain when `saved_ms` of the host's time a step goes away, and nothing else changes.

    The rest of the loop stays, so the step becomes `step - saved`, never less than the device's own time. The time
    saved is believed to `spread` either way, or wholly where it was timed (`exact`). The bound allows for the whole of
    it and for the host's waits for the device, which shrink as well when the loop runs ahead.
    """
    step = evidence.step_ms
    rest = step - saved_ms
    device = floor_ms(evidence)
    best = slack(evidence) * (rest - (evidence.wait_ms.get("sync") or 0.0) - 0.05 * step)
    # What is left can be next to nothing; a quarter of it is more than samples and clocks are off by.
    best = max(best, device, min(0.02 * step, 0.25 * max(rest, 0.002 * step)))
    if exact:
        return gain_between(evidence, best, (max(slack(evidence) * rest, best, device), max(rest, device)))
    likely = (max(rest - spread * saved_ms, device), max(min(rest + spread * saved_ms, step), device))
    return gain_between(evidence, best, likely)

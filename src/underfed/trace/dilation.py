"""How far the profiler slowed the host: the traced step against what it would be with nobody watching."""

from __future__ import annotations

from dataclasses import dataclass

from underfed.timeline.facts import TraceFacts

#: What a recorded row costs the host, in ns: a runtime call, an operator, its shapes on top, a Python function.
#: Measured on the labelled H200 runs as traced minus untraced step; they scatter by the factors below around these.
RUNTIME_NS = 4_000
OPERATOR_NS = 3_000
SHAPES_NS = 2_500
PYTHON_NS = 400
#: Least, likely and most of that cost, as seen over the labelled runs.
LIKELY = 0.85
SPREAD = (0.40, LIKELY, 1.25)
#: The profiler has not been seen to take more than this share of the time in which the host works.
MOST_SHARE = 0.62


@dataclass(frozen=True)
class StepTime:
    """A step in ns: as traced, and untraced at least, likely and at most. Equal where it was given from outside."""

    traced: float
    low: float
    likely: float
    high: float
    given: bool

    def untraced(self, share_of: float) -> tuple[float, float]:
        """Range of `share_of` ns as a share of the step."""
        return share_of / self.high, share_of / self.low


def recording_cost(facts: TraceFacts, steps: int) -> float:
    """What recording cost the host a step, in ns."""
    counts = facts.counts
    operator = OPERATOR_NS + (SHAPES_NS if facts.shapes else 0)
    return (counts.runtime * RUNTIME_NS + counts.operators * operator + counts.python * PYTHON_NS) / steps


def step_time(facts: TraceFacts, steps: int, traced: float, given_ns: float | None) -> StepTime:
    """Estimate the untraced step; `traced` is the traced one in ns, `given_ns` the untraced one where it is known.

    Only the host's own work is slowed: waits for data and for the device are not, and the step never gets shorter than
    the device's work in it.
    """
    if given_ns is not None:
        return StepTime(traced, given_ns, given_ns, given_ns, True)
    device = facts.main
    busy = device.work.busy_ns / steps if device else 0.0
    waits = sum(facts.host_ns.get(name, 0) for name in ("data", "sync")) / steps
    cost = min(recording_cost(facts, steps), MOST_SHARE * max(0.0, traced - waits))
    low, likely, high = (max(busy, traced - factor * cost) for factor in reversed(SPREAD))
    return StepTime(traced, max(low, 1.0), max(likely, 1.0), max(high, 1.0), False)

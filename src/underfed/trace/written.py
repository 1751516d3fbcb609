"""How the program is written, from what its trace gives away: as the evidence that the rules take from a run as well.

Host times in a trace are stretched by the profiler. Time in operators shrinks with the step; silence and waits do not.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from underfed.playbook.evidence import EpochFacts, Spot
from underfed.timeline.facts import TraceFacts
from underfed.trace.dilation import LIKELY, MOST_SHARE, StepTime, recording_cost

_MS = 1e-6
#: Share of the backward pass's nodes that are asked for NaNs from which anomaly detection is on: it asks every one that
#: makes a gradient.
_CHECKED = 0.5
#: Kernels a step of an optimizer's own from which it updates tensors one by one: fused and foreach forms need a few
#: dozen for any model.
_ONE_BY_ONE = 100
#: A step this many times above the median that copies this much more to the host is a checkpoint, or works like one.
_LONG_STEP = 3.0
_MANY_READS = 20
_MORE = 1.5


def settings(facts: TraceFacts, steps: int) -> dict[str, Any]:
    """Settings of torch that the clues give away."""
    clues = facts.clues
    found: dict[str, Any] = {}
    if clues.backward_nodes and clues.nan_checks >= _CHECKED * clues.backward_nodes:
        found["anomaly"] = True
    if clues.recomputed_ns:
        found["checkpointing"] = True
    launched = clues.optimizer_kernels / steps
    if launched >= _ONE_BY_ONE and clues.optimizer_lists < clues.optimizer_kernels / 2:
        own = {"name": clues.optimizer or "optimizer", "torch_own": False, "foreach": False, "kernels": launched}
        found["optimizers"] = [own]
    return found


def regions(facts: TraceFacts, steps: int, time: StepTime) -> dict[str, float]:
    """Host time by region in ms a step."""
    data = facts.host_ns.get("data", 0) / steps
    if time.given and data > time.traced / 2:
        # The profiler makes the rest of the loop longer, never shorter: what the untraced step has more is waiting.
        data = max(data, time.likely - (time.traced - data))
    found = {"data": data * _MS}
    if facts.clues.optimizer_ns:
        found["optimizer"] = facts.clues.optimizer_ns * _MS / steps * min(1.0, time.likely / time.traced)
    return found


def usual_ms(facts: TraceFacts, steps: int) -> float | None:
    """The median step in ms without what recording it cost; None with too few steps."""
    chosen = facts.steps[facts.warmup_steps :]
    if len(chosen) < 3:
        return None
    traced, busy = median(step.wall_ns for step in chosen), median(step.work.busy_ns for step in chosen)
    return max(float(busy), traced - LIKELY * min(recording_cost(facts, steps), MOST_SHARE * traced)) * _MS


def epochs(facts: TraceFacts, steps: int) -> EpochFacts | None:
    """Starts of a loader's workers, where some were seen."""
    clues = facts.clues
    if not clues.worker_starts:
        return None
    silent = clues.worker_silence_ns
    return EpochFacts(
        count=clues.worker_starts,
        steps=steps / clues.worker_starts,
        start_ms=silent * _MS / clues.worker_starts,
        first_wait_ms=(clues.worker_start_ns - silent) * _MS / clues.worker_starts,
    )


def spots(facts: TraceFacts, step_ms: float) -> tuple[Spot, ...]:
    """Checkpoints: single steps, far longer than the others, that copy a lot to the host."""
    steps = facts.steps[facts.warmup_steps :]
    reads = facts.clues.step_reads
    if len(steps) < 3 or len(reads) != len(steps):
        return ()
    usual, ordinary = median(step.wall_ns for step in steps), median(reads)
    # A step that computes more as well holds a validation, which reads its results too.
    computing = _MORE * median(step.work.compute_ns for step in steps)
    long = [
        step.wall_ns - usual
        for step, count in zip(steps, reads, strict=True)
        if step.wall_ns > _LONG_STEP * usual
        and count >= _MANY_READS + 5 * ordinary
        and step.work.compute_ns <= computing
    ]
    if not long:
        return ()
    # How often it happens is not known from a few steps; where the true step is longer than these, that is why.
    cost = min(max(sum(long) * _MS / len(steps), step_ms - usual * _MS), step_ms)
    where = "copies to the host, and what follows them"
    return (Spot(kind="checkpoint", where="", leaf=where, ms=cost, samples=len(long)),)


def reads_in_most_steps(facts: TraceFacts) -> bool:
    """Tell whether the ordinary step copies results to the host."""
    reads = facts.clues.step_reads
    return bool(reads) and median(reads) >= 1

"""One rank, or few, comes late to the collectives, and all the others stand still until it does.

What it looks like
    In the traces of all ranks the same rank is the last to enter the collectives; on every other rank the same kernels
    of NCCL or RCCL take far longer, since they wait. On a single rank's trace this looks like slow communication.

Why it costs
    A step of synchronous training takes as long as its slowest rank. Faster links do not help: the time is not spent
    moving data.

Fix
    Where one rank is late: look at that rank alone. Slower kernels point at its card (power or thermal limits,
    another process on it, a narrower link: compare `$ nvidia-smi -q -d PERFORMANCE` over the ranks); waiting for
    input at its storage or its CPUs; slow launches at its host, or at work that only this rank does (rank 0 logs
    and saves). Where it moves between the ranks: give them equal work (batches of equal token counts), a deeper
    prefetch queue, and run gc.collect() on all ranks at the same step with gc.freeze() and gc.disable() in between.
    plain PyTorch: `DataLoader(..., drop_last=True, prefetch_factor=4)`
    HF Trainer:    `TrainingArguments(dataloader_drop_last=True, dataloader_prefetch_factor=4)`
    Lightning:     `DataLoader(..., drop_last=True, prefetch_factor=4)` in train_dataloader()

How it is found
    Collectives are matched over the ranks' traces by group and sequence number, and each is lined up by its own end,
    so the machines' clocks do not matter. The rank with the shortest kernel came last; the others' extra time, where no
    compute kernel covers it, is what its lateness costs. In a run without a GPU: what DistributedDataParallel times of
    the same backward passes on all ranks. The rank that waits least came last, and it is called late where its own
    work, timed in every step, is longer as well. Ranks that take turns must cost much more than chance does.

When it stays silent
    With one rank, where waiting and moving data cannot be told apart, and where the waiting is below the noise.

Not to be confused with
    T23 (moving the data takes long, on all ranks alike).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Gain, Observation, Source
from underfed.playbook.evidence import Evidence, SkewFacts
from underfed.playbook.gains import gain_between, slack
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find ranks that the others wait for."""
    skew, step = evidence.skew, evidence.step_ms
    if skew is None or step <= 0 or skew.waiting < T.worth * step:
        return None
    if evidence.kind == "run" and not skew.late and not _in_turns(evidence, skew):
        return None
    source: Source = "trace" if evidence.kind == "trace" else "agent"
    observed = [
        Observation(source=source, text="a mean rank waits for the last one", value=_ms(skew.waiting), unit="ms/step"),
        Observation(source=source, text="the rank that waits longest", value=_ms(skew.longest), unit="ms/step"),
        Observation(source=source, text="uncovered transfer of a mean rank", value=_ms(skew.moving), unit="ms/step"),
    ]
    if skew.why is not None:
        observed.append(Observation(source=source, text=skew.why, value=_ms(skew.why_ms or 0.0), unit="ms/step"))
    # However equal the ranks are made, no rank gains more than it waits, nor does its own device work go away.
    best = max(step - skew.longest, min(skew.device, step))
    if evidence.kind == "run" and skew.late:
        best *= slack(evidence)
    # How equal the ranks can be made is for a trial to say.
    likely = (step - skew.saved, step - 0.8 * skew.saved) if skew.late else None
    gain: Gain = gain_between(evidence, best, likely)
    return RULE.finding(
        summary=summary(skew),
        gain=gain,
        # A late rank lengthens the step of all, whatever it is that makes it late.
        bound=evidence.bound if evidence.bound != "unknown" else None,
        evidence=observed,
        fix=Fix(
            text="look at what the late rank alone does: its card, its input, its host"
            if skew.late
            else "give the ranks equal work: batches of equal size, a deeper prefetch queue, garbage collection at once"
        ),
    )


#: A larger share of the waiting for one rank is no taking of turns.
_TURNS = 0.75


def _in_turns(evidence: Evidence, skew: SkewFacts) -> bool:
    """Whether few timed passes show ranks that take turns, and not chance, or ranks that had no CPU."""
    crowded = evidence.cpu_wait is not None and evidence.cpu_wait >= T.crowded_thread
    least = max(T.turns * evidence.step_ms, T.ends_apart * skew.moving)
    return not crowded and skew.share <= _TURNS and skew.waiting >= least


def summary(skew: SkewFacts) -> str:
    """Say who is late, by how much, where, and why."""
    if not skew.late:
        return (
            f"The ranks take turns at being late, mostly in {skew.where}: a mean rank stands still for "
            f"{skew.waiting:.3g} ms of each step, and none causes more than {skew.share:.0%} of it."
        )
    one = len(skew.late) == 1
    who = f"{'rank' if one else 'ranks'} {', '.join(map(str, skew.late))}"
    why = f" ({skew.why}, by {skew.why_ms:.3g} ms)" if skew.why is not None and skew.why_ms is not None else ""
    return (
        f"The other {skew.ranks - len(skew.late)} ranks stand still for {skew.waiting:.3g} ms of each step, "
        f"{skew.share:.0%} of that for {who}{why}, mostly in {skew.where}."
    )


def _ms(value: float) -> float:
    return round(value, 3)


RULE = Rule(
    id="X13",
    name="ranks-wait-for-late-one",
    stage="comms",
    bound="comms",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

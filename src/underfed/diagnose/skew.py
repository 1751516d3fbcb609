"""Ranks of one run held against each other by what DistributedDataParallel times of the same backward passes.

The exchange of one pass ends on all ranks together. What it keeps the rank waiting that came last is moving data; what
it keeps another one waiting beyond that is standing still for the last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.playbook.evidence import RankFacts, SkewFacts
from underfed.recording import records as r
from underfed.recording.read import ProcessLog

_MS = 1e-6
_WHERE = "the gradient exchange"
#: Passes before torch has set up its buckets anew.
_SET_UP = 2


def exposed_by_pass(log: ProcessLog, warmup: int) -> dict[tuple[int, int], int]:
    """What no computing covers of each timed exchange, in ns, by model and backward pass.

    Those of the warm-up count as well, but for the passes that set up the buckets: torch times few behind it.
    """
    found = {}
    for line in log.of(r.Ddp):
        if line.iteration > _SET_UP or line.step > warmup:
            found[line.model, line.iteration] = max(0, line.exchange - line.overlap)
    return found


def skew_of_run(
    readings: Mapping[int, Mapping[tuple[int, int], int]], ranks: Sequence[RankFacts], world: int, times: float
) -> SkewFacts | None:
    """Hold the ranks against each other, in ms a step of `times` exchanges; None where not all of `world` were seen, or
    too few passes were timed on all of them.
    """
    if len(ranks) < 2 or len(ranks) < world or any(not readings.get(one.rank) for one in ranks):
        return None
    common = set.intersection(*(set(readings[one.rank]) for one in ranks))
    by_model: dict[int, list[int]] = defaultdict(list)
    for model, iteration in common:
        by_model[model].append(iteration)
    if not by_model:
        return None
    model = max(by_model, key=lambda number: sum(readings[ranks[0].rank][number, at] for at in by_model[number]))
    if len(by_model[model]) < T.few_exchanges:
        return None
    moving, waiting = [], []
    waits: dict[int, list[int]] = defaultdict(list)
    caused: dict[int, float] = defaultdict(float)
    for iteration in sorted(by_model[model]):
        exposed = {one.rank: readings[one.rank][model, iteration] for one in ranks}
        last = min(exposed, key=lambda rank: exposed[rank])
        moving.append(exposed[last])
        waiting.append((sum(exposed.values()) - len(exposed) * exposed[last]) / (len(exposed) - 1))
        caused[last] += waiting[-1]
        for rank, value in exposed.items():
            waits[rank].append(value - exposed[last])
    scale = times * _MS
    mean = median(waiting) * scale
    worst = max(caused, key=lambda rank: caused[rank])
    share = caused[worst] / max(sum(caused.values()), 1e-9)
    # Few passes are timed, and the first ones: a rank's own work, timed in all steps, must say the same.
    ahead = max(0.0, _ahead(ranks, worst))
    late = ahead >= max(T.late_rank * mean, T.unsure * max(one.step_ms for one in ranks))
    others = [one for one in ranks if one.rank != worst]
    why, longer = _why(next(one for one in ranks if one.rank == worst), others, mean) if late else (None, None)
    return SkewFacts(
        ranks=len(ranks),
        late=(worst,) if late else (),
        # Where they take turns, each rank waits in all passes but those in which it is the last.
        waiting=mean if late else mean * (len(ranks) - 1) / len(ranks),
        # A rank that is late in every second pass waits in the others, so this is a mean and no median.
        longest=max(max(fmean(each), median(each)) for each in waits.values()) * scale,
        moving=median(moving) * scale,
        saved=min(mean, ahead) if late else 0.0,
        device=0.0,
        share=share,
        where=_WHERE,
        why=why,
        why_ms=longer,
    )


def _ahead(ranks: Sequence[RankFacts], worst: int) -> float:
    """By how much a rank's own work takes longer than that of the slowest other one, in ms a step."""
    own = {one.rank: one.own_ms for one in ranks}
    return own[worst] - max(value for rank, value in own.items() if rank != worst)


def _why(late: RankFacts, others: Sequence[RankFacts], waiting: float) -> tuple[str | None, float | None]:
    """What the late rank does longer a step than the others' median, where that explains most of it."""

    def parts(one: RankFacts) -> dict[str, float]:
        return {
            "it waits longer for input": one.data_ms,
            "it does more between the steps": one.stall_ms,
            "it computes for longer": one.own_ms - one.data_ms - one.stall_ms,
        }

    mine, theirs = parts(late), [parts(one) for one in others]
    longer = {name: value - median(each[name] for each in theirs) for name, value in mine.items()}
    name = max(longer, key=lambda key: longer[key])
    return (name, longer[name]) if longer[name] >= T.late_rank * waiting else (None, None)

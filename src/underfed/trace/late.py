"""Which rank the others wait for, and what it does longer than they."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from underfed.playbook.evidence import SkewFacts
from underfed.timeline.collectives import CollectiveLog
from underfed.timeline.facts import TraceFacts
from underfed.timeline.ranks import ROWS_MOST, Skew, skew_of
from underfed.trace.evidence import steady_steps

_MS = 1e-6
#: A difference explains a rank's being late from this part of it on.
_EXPLAINS = 0.4
#: Clocks of one machine agree to some us; those of several machines do not.
_CLOCKS_APART_NS = 1_000_000
#: What a rank can do longer than the others: idle causes that belong together, or device work.
_IDLE = {
    "its device waits for input": ("data", "transfer"),
    "its host takes longer to launch work": ("launch", "host"),
    "its device waits behind syncs": ("sync",),
    "its host is held up by other work": ("allocator", "gc", "compile", "stall", "silent"),
}


def ranks_of(facts: Sequence[TraceFacts]) -> tuple[list[int], list[str]]:
    """Return the rank of each trace, by its place where not all say one, and a limit where ranks repeat."""
    said = [one.rank for one in facts if one.rank is not None and one.rank >= 0]
    if len(said) < len(facts):
        return list(range(len(facts))), []
    more = len(said) - len(set(said))
    if not more:
        return said, []
    return said, [f"{more} of the traces are of ranks that another one shows: ranks are compared by the first of each"]


def skew_between(facts: Sequence[TraceFacts], ranks: Sequence[int]) -> tuple[Skew | None, SkewFacts | None, list[str]]:
    """Hold the ranks against each other; None where they have no collective in common, and what limits the answer."""
    limits: list[str] = []
    first = {rank: one for one, rank in reversed(list(zip(facts, ranks, strict=True)))}
    with_log = [(one, rank) for rank, one in sorted(first.items()) if one.log is not None]
    world = max((one.world_size or 0 for one in facts), default=0)
    if len(first) == 1:
        if with_log and world != 1:
            of = f" of {world}" if world else ""
            limits.append(
                f"one rank{of}: waiting in collectives for a late rank and moving data cannot be told apart; "
                "give the traces of all ranks"
            )
        return None, None, limits
    if world > len(first):
        limits.append(f"traces of {len(first)} of {world} ranks: one that is missing may be the one that is late")
    skew = None
    if len(with_log) > 1:
        skew = skew_of([one.log for one, _ in with_log if one.log is not None], [rank for _, rank in with_log])
    if skew is None:
        limits.append("the traces have no collective in common: no rank can be held against another")
        return None, None, limits
    if skew.unmatched > 0.05 * (skew.matched + skew.unmatched):
        limits.append(
            f"{skew.unmatched} kernels that communicate have no counterpart in the other ranks' traces and are left out"
        )
    if skew.clocks_ns is not None and skew.clocks_ns > _CLOCKS_APART_NS:
        limits.append(
            f"the ranks' clocks are {skew.clocks_ns * _MS:.3g} ms apart: they are lined up by the ends of collectives"
        )
    if dropped := sum(_dropped(one.log, len(with_log)) for one, _ in with_log if one.log is not None):
        limits.append(f"{dropped} later collectives were left out when holding the ranks against each other")
    return skew, _facts(skew, list(first.values()), list(first)), limits


def _dropped(log: CollectiveLog, ranks: int) -> int:
    return log.dropped + max(0, len(log.key) // 8 - ROWS_MOST // ranks)


def _facts(skew: Skew, facts: Sequence[TraceFacts], ranks: Sequence[int]) -> SkewFacts:
    steps = max(1, round(median(max(1, steady_steps(one)) for one in facts)))
    # The collectives that began the recording are not in the sums: a mean one stands for each of them.
    scale = _MS / steps * (skew.matched + skew.opening) / skew.matched
    why, longer = _why(skew, facts, ranks)
    worst = skew.collectives[0]
    return SkewFacts(
        ranks=len(skew.ranks),
        late=tuple(skew.late),
        waiting=skew.caused_ns * scale,
        longest=max(one.wait_ns for one in skew.ranks) * scale,
        moving=sum(one.transfer_ns for one in skew.ranks) / len(skew.ranks) * scale,
        saved=skew.saved_ns * scale,
        device=sum(_own_device(one) for one in facts) / len(facts) * _MS,
        share=skew.late_share,
        where=worst.name + (f" of group {worst.group}" if worst.group else ""),
        why=why,
        why_ms=longer,
    )


def _own_device(facts: TraceFacts) -> float:
    device = facts.main
    return (device.work.busy_ns - device.work.exposed_comms_ns) / max(1, steady_steps(facts)) if device else 0.0


def _why(skew: Skew, facts: Sequence[TraceFacts], ranks: Sequence[int]) -> tuple[str | None, float | None]:
    """What the late ranks do longer a step than the others' median, where that explains most of it."""
    late = [_habits(one) for one, rank in zip(facts, ranks, strict=True) if rank in skew.late]
    others = [_habits(one) for one, rank in zip(facts, ranks, strict=True) if rank not in skew.late]
    if not late or not others:
        return None, None
    longer = {name: median(one[name] for one in late) - median(one[name] for one in others) for name in late[0]}
    name = max(longer, key=lambda key: longer[key])
    steps = max(1, steady_steps(facts[0]))
    if longer[name] < _EXPLAINS * skew.caused_ns / steps:
        return None, None
    return name, longer[name] * _MS


def _habits(facts: TraceFacts) -> dict[str, float]:
    """What one rank's device and host take, in ns a step."""
    steps = max(1, steady_steps(facts))
    device = facts.main
    idle = device.idle_ns if device else {}
    found = {name: sum(idle.get(cause, 0) for cause in causes) / steps for name, causes in _IDLE.items()}
    found["its kernels take longer"] = (device.work.compute_ns if device else 0) / steps
    found["its copies take longer"] = (device.work.exposed_copy_ns if device else 0) / steps
    return found

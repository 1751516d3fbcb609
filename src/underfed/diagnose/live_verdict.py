"""The live verdict: what gates a run that is going on, from the sums of one window; the first that holds is it."""

from __future__ import annotations

from underfed.diagnose.live_decision import Decision
from underfed.diagnose.live_frames import COMMS, DATA
from underfed.diagnose.live_gpu import Gpu
from underfed.diagnose.live_hung import hung
from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_step import grade, on_cpu, on_gpu
from underfed.diagnose.live_sum import RankSum, Sums
from underfed.diagnose.live_words import at, line, percent
from underfed.diagnose.split import lower


def decide(found: Sums, gpu: Gpu) -> Decision:
    """Say what gates the run."""
    for question in (_stopped, _blind, hung, _throttled, _crowded, _ranks):
        answer = question(found)
        if answer is not None:
            return answer
    rank = max(found.ranks, key=lambda each: each.samples)
    return on_gpu(found, rank, gpu) if gpu.used else on_cpu(rank, gpu)


def _stopped(found: Sums) -> Decision | None:
    states = [rank.member.life.states for rank in found.ranks if rank.member.life.states]
    stopped = [state for state in states if state["T"] + state["t"] > 0.9 * sum(state.values())]
    if not states or len(stopped) < len(states):
        return None
    pids = " ".join(str(rank.member.pid) for rank in found.ranks)
    traced = any(state["t"] for state in stopped)
    how = "A debugger holds it" if traced else f"`kill -CONT {pids}` lets it go on"
    return Decision(
        "unknown",
        "high",
        f"The process is stopped (state {'t' if traced else 'T'}): it does nothing at all until somebody continues it."
        f" {how}.",
        head="stopped",
    )


def _blind(found: Sums) -> Decision | None:
    """Without stacks only what the counters say is left; they tell what is scarce, but not where the loop stands."""
    if any(rank.samples >= L.samples_any for rank in found.ranks):
        return None
    scarce = _throttled(found) or _crowded(found)
    if scarce is not None:
        return scarce
    seen = found.seen
    reason = seen.sampling.reason
    if not found.ranks:
        return Decision("unknown", "low", "No Python process of this tree was seen at work.")
    if reason is None:
        few = max(rank.samples for rank in found.ranks)
        return Decision(
            "unknown",
            "low",
            f"I cannot tell what gates this run: only {few} samples of its stacks were taken.",
            settle=f"underfed attach {seen.target.pid} --seconds 30",
        )
    rank = max(found.ranks, key=lambda each: each.process.cpu)
    workers = [member for member in found.members if member.role == "worker"]
    busy = rank.thread.cpu if rank.thread is not None else rank.process.cpu
    facts = f"its main thread used {percent(busy)} of a CPU"
    if workers:
        used = sum(_cpu(member.life.first, member.life.last, seen.seconds) for member in workers)
        facts += f", its {len(workers)} workers {percent(used / len(workers))} each"
    return Decision(
        "unknown",
        "low",
        f"I cannot tell what gates this run without its stacks; {facts}, which alone does not say where it waits.",
        settle="stacks: what they lack is said below",
    )


def _cpu(first: object, last: object, seconds: float) -> float:
    total = [getattr(each, "utime_ms", 0) + getattr(each, "stime_ms", 0) for each in (first, last)]
    return (total[1] - total[0]) / 1000 / max(seconds, 1e-3)


def _throttled(found: Sums) -> Decision | None:
    if found.throttled is None or found.throttled < L.throttled:
        return None
    quota = found.seen.cpus.quota or 0.0
    return Decision(
        "host",
        "high" if found.seen.seconds >= L.still_seconds else "medium",
        f"The CPU quota of {quota:g} is used up in {percent(found.throttled)} of its periods, and the kernel then stops"
        f" every thread until the next one. Threads of the training that want a CPU: {found.runnable}."
        + ("" if found.runnable > max(1.0, quota) else " Fewer threads cannot help: the quota itself is too small."),
        head="throttled",
        why="throttled",
        about=next(iter(found.ranks), None),
    )


def _crowded(found: Sums) -> Decision | None:
    """More threads want a CPU than there are CPUs: the training processes' own, or those of other programs."""
    queued, usable = found.tree.queue_share, found.seen.cpus.usable
    if queued is None or usable is None or queued < L.queued or found.tree.run is None or found.tree.wait is None:
        return None
    about = max(found.ranks, key=_held_up, default=None)
    if about is None or _held_up(about) < L.held_up:
        return None
    ranks = [rank.process for rank in found.ranks]
    wanted = sum((use.run or 0.0) + (use.wait or 0.0) for use in ranks)
    if found.runnable >= 1.5 * usable and wanted >= 1.3 * usable:
        return Decision(
            "host",
            "high" if found.runnable >= 2 * usable else "medium",
            f"{found.runnable} threads of the training process{'es' if len(ranks) > 1 else ''} want a CPU and there are"
            f" {usable:g}: {percent(queued)} of the time in which they could run they wait for one.",
            head="threads oversubscribed",
            why="threads",
            about=about,
        )
    others = max(0.0, (found.machine or 0.0) - found.tree.cpu)
    if others > L.others * usable and _held_up(about) >= L.starved:
        return Decision(
            "host",
            "medium",
            f"Other programs of this machine use {others:.1f} of its CPUs; this run waits for a CPU in"
            f" {percent(queued)} of the time in which it wants one.",
            head="short of CPUs",
            why="others",
            about=about,
        )
    return None


def _held_up(rank: RankSum) -> float:
    """Share of the window for which the training thread, or a mean worker of it, had no CPU and wanted one."""
    thread = rank.thread.wait if rank.thread is not None else None
    workers = rank.workers.use.wait if rank.workers is not None else None
    return max(thread or 0.0, workers or 0.0)


def in_collective(rank: RankSum, several: bool) -> float:
    """Share of a rank's time in collectives. Gradients are exchanged inside backward on a CPU: where a rank of several
    stands in backward and computes for only a part of it, the rest is that exchange.
    """
    found = rank.comms
    backward = rank.share("backward")
    if several and backward > 0 and rank.process.run is not None:
        idle = 1.0 - (rank.process.run + (rank.process.wait or 0.0))
        found += min(backward, max(0.0, idle - rank.comms - rank.share(*DATA, "sleep", "lock", "wait")))
    return found


def _ranks(found: Sums) -> Decision | None:
    worlds = [rank.member.world or 1 for rank in found.ranks]
    several = max([len(found.ranks), *worlds]) > 1
    waits = {rank.member.pid: in_collective(rank, several) for rank in found.ranks if rank.samples >= L.samples_any}
    if not waits or max(waits.values()) < L.comms:
        return None
    seen = [rank for rank in found.ranks if rank.member.pid in waits]
    late = min(seen, key=lambda rank: waits[rank.member.pid])
    first = max(seen, key=lambda rank: waits[rank.member.pid])
    most, least = waits[first.member.pid], waits[late.member.pid]
    where = first.top(COMMS) or first.top({"backward"})
    place = f" at {at(where)}" if where is not None else ""
    confidence = grade(first) if first.comms >= L.comms else lower(grade(first))
    if len(seen) > 1 and most - least >= L.late_rank:
        own = max((spot for spot in late.spots if spot.kind not in COMMS), key=lambda s: late.spots[s], default=None)
        text = (
            f"{first.member.name.capitalize()} spends {percent(most)} of its time in a collective{place}, and"
            f" {late.member.name} {percent(least)}: the others wait for {late.member.name}"
        )
        text += f", which is most often at {line(own)}." if own is not None else "."
        return Decision("comms", confidence, text, head="waiting in a collective", share=most, about=late, why="late")
    if least < L.comms:
        return None
    alone = len(seen) == 1 and max(worlds) > 1
    tail = (
        f" Only one rank of {max(worlds)} was seen: which one it waits for is not known."
        if alone
        else " All ranks wait about equally long: the exchange itself, not one late rank, takes the time."
    )
    return Decision(
        "comms",
        lower(confidence) if alone else confidence,
        f"{first.member.name.capitalize()} spends {percent(most)} of its time in a collective{place}.{tail}",
        head="waiting in a collective",
        settle="underfed attach the launcher's pid, or attach on the other machines as well" if alone else None,
        share=most,
        about=first,
        why="comms",
    )

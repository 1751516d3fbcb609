"""From one window of a run that goes on to a Diagnosis: the same records and rules as everywhere."""

from __future__ import annotations

from collections import Counter

from underfed.diagnose import live_records as r
from underfed.diagnose.live_decision import Decision
from underfed.diagnose.live_findings import findings_of
from underfed.diagnose.live_gpu import Gpu, gpu_of
from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_roles import Member
from underfed.diagnose.live_sum import RankSum, Sums, sums, use_of
from underfed.diagnose.live_verdict import decide
from underfed.diagnose.live_words import at, frame_line
from underfed.diagnose.places import shorten
from underfed.diagnosis import Step, Subject, Verdict
from underfed.observe.live.window import Seen
from underfed.playbook.switches import with_trials

_MOST_PLACES = 12
_MOST_FRAMES = 40


def diagnose(seen: Seen, permission: str | None) -> r.LiveDiagnosis:
    """Say what one window means. `permission` is the line that says how to give what stacks need, where it lacks."""
    found = sums(seen)
    gpu = gpu_of(found)
    decision = decide(found, gpu)
    findings = with_trials(findings_of(found, decision))
    cause = findings[0] if findings and findings[0].bound == decision.bound else None
    share = gpu.busy if gpu.used else decision.share if decision.bound == "compute" else None
    return r.LiveDiagnosis(
        subject=Subject(
            kind="live",
            paths=[f"/proc/{seen.target.pid}"],
            ranks=len(found.ranks) or None,
            device=_device(gpu),
        ),
        verdict=Verdict(
            bound=decision.bound,
            cause=cause.rule if cause is not None else None,
            confidence=decision.confidence,
            text=decision.text,
            settle=decision.settle,
        ),
        step=Step(device_share=round(share, 3) if share is not None else None),
        findings=findings,
        limits=_limits(found, gpu, decision, permission),
        live=_live(found, gpu, decision),
    )


def _device(gpu: Gpu) -> str | None:
    if gpu.used and gpu.main is not None:
        return gpu.main.name or "GPU"
    return None if gpu.unsure or gpu.used else "CPU"


def _limits(found: Sums, gpu: Gpu, decision: Decision, permission: str | None) -> list[str]:
    seen, limits = found.seen, []
    if permission is not None or seen.sampling.reason is not None:
        limits.append(f"no stacks: {permission or seen.sampling.reason}")
    if seen.ended != "window":
        how = "the process ended" if seen.ended == "exit" else "stopped by Ctrl-C"
        limits.append(f"{how} after {seen.seconds:.1f} s; this is what was seen until then")
    if any(rank.samples for rank in found.ranks):
        limits.append("how long a step takes is not seen from outside, so shares are of the time, not of a step")
    if any(rank.share("import") > L.starting for rank in found.ranks):
        limits.append("the run was still starting (imports): look again when it trains")
    return [*limits, *_gpu_limits(gpu, decision), *_host_limits(found, decision)]


def _gpu_limits(gpu: Gpu, decision: Decision) -> list[str]:
    main, limits = gpu.main, []
    if gpu.unsure:
        limits.append(f"GPU: {gpu.reason}")
    if gpu.used and main is not None and main.sm is None and main.utilization is not None:
        limits.append("this card gives no GPM counters: utilization says that some kernel ran, not that it was full")
    if main is not None and main.sm is not None and (main.utilization or 0) - main.sm > L.gpu_differ:
        limits.append(
            f"utilization reads {main.utilization:.0f} %, but the SMs were active for {main.sm:.0f} %: T2, it misleads"
        )
    if decision.bound == "comms" and gpu.used:
        limits.append("a rank that waits in a collective on its GPU is not told from one that computes")
    return limits


def _host_limits(found: Sums, decision: Decision) -> list[str]:
    seen, limits = found.seen, []
    others = max(0.0, (found.machine or 0.0) - found.tree.cpu)
    if seen.cpus.usable and others > L.others * seen.cpus.usable and decision.why != "others":
        limits.append(f"other programs used {others:.1f} CPUs meanwhile: without them the shares can differ")
    kills = seen.before.memory.oom_kills, seen.after.memory.oom_kills
    if kills[0] is not None and kills[1] is not None and kills[1] > kills[0]:
        limits.append(f"killed for memory in this group within the window: {kills[1] - kills[0]}")
    return limits


def _live(found: Sums, gpu: Gpu, decision: Decision) -> r.Live:
    seen, machine = found.seen, found.seen.after
    held = seen.holding.cpu_s if seen.holding is not None else 0.0
    return r.Live(
        pid=seen.target.pid,
        asked=seen.target.asked,
        note=seen.target.note,
        seconds=round(seen.seconds, 3),
        ended="window" if seen.ended == "window" else "exit" if seen.ended == "exit" else "interrupt",
        headline=decision.head,
        sampled=r.Sampled(
            rate=seen.sampling.rate,
            samples=sum(len(thread.samples) for thread in seen.sampling.threads),
            torn=sum(thread.torn for thread in seen.sampling.threads),
            errors=seen.sampling.errors,
            cpus=round((seen.sampling.cpu_s + held + seen.own_cpu_s) / max(seen.seconds, 1e-3), 4),
            reason=seen.sampling.reason,
        ),
        processes=[_process(member, found) for member in found.members],
        ranks=[_rank(rank) for rank in found.ranks],
        workers=[_workers(rank) for rank in found.ranks if rank.workers is not None],
        host=r.Host(
            usable_cpus=seen.cpus.usable,
            limited_by=seen.cpus.limited_by,
            quota=seen.cpus.quota,
            run_cpus=round(found.tree.cpu, 3),
            machine_cpus=round(found.machine, 3) if found.machine is not None else None,
            queued=_round(found.tree.queue_share),
            runnable_threads=found.runnable,
            throttled=_round(found.throttled),
            pressure={name: round(share, 3) for name, share in found.pressure.items()},
            memory_limit=machine.memory.limit,
            memory_used=machine.memory.used,
            memory_cache=machine.memory.cache,
            oom_kills=machine.memory.oom_kills,
            shm_free=seen.shm.free if seen.shm is not None else None,
            shm_total=seen.shm.total if seen.shm is not None else None,
        ),
        gpu=[r.Gpu(**{**vars(device), "throttled": list(device.throttled)}) for device in gpu.devices],
        gpu_reason=gpu.reason,
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _process(member: Member, found: Sums) -> r.Process:
    life, seconds = member.life, max(found.seen.seconds, 1e-3)
    use = use_of(life, found.seen)

    def rate(name: str) -> float | None:
        first, last = getattr(life.first, name), getattr(life.last, name)
        return None if first is None or last is None else round((last - first) / 1e6 / seconds, 3)

    return r.Process(
        pid=member.pid,
        ppid=life.first.ppid,
        role=member.role,
        rank=member.rank,
        name=life.last.comm,
        state="gone" if life.gone else life.last.state,
        cpus=round(use.cpu, 3),
        queued=_round(use.queue_share),
        threads=life.last.threads,
        affinity=life.last.affinity,
        major_faults=life.last.majflt - life.first.majflt,
        read_mb_s=rate("read_bytes"),
        asked_mb_s=rate("rchar"),
        memory=life.last.rss,
        storage=[name for name, _ in life.storage.most_common(3)],
    )


def _rank(rank: RankSum) -> r.Rank:
    total = max(rank.samples, 1)
    by_line: Counter[tuple[str, str, str]] = Counter()
    held: Counter[tuple[str, str, str]] = Counter()
    for spot, count in rank.spots.items():
        by_line[spot.kind, at(spot), spot.text] += count
    for spot, count in rank.holding.items():
        held[spot.kind, at(spot), spot.text] += count
    thread = rank.member.training
    waits = rank.member.life.waits.get(thread.tid if thread is not None and thread.tid else rank.member.pid)
    return r.Rank(
        pid=rank.member.pid,
        rank=rank.member.rank,
        thread=thread.name if thread is not None else None,
        samples=rank.samples,
        moves=rank.moves,
        kinds={kind: round(count / total, 3) for kind, count in rank.kinds.most_common() if count},
        places=[
            r.Place(
                kind=key[0],
                where=key[1],
                text=key[2],
                share=round(count / total, 3),
                holding=round(min(held[key], count) / total, 3) if rank.holding else None,
            )
            for key, count in by_line.most_common(_MOST_PLACES)
        ],
        stack=[frame_line(frame) for frame in rank.stack[:_MOST_FRAMES]],
        kernel=waits.most_common(1)[0][0] if waits else None,
    )


def _workers(rank: RankSum) -> r.Workers:
    sum_ = rank.workers
    assert sum_ is not None  # noqa: S101  # asked for only where there are some
    return r.Workers(
        pid=rank.member.pid,
        count=sum_.count,
        fetch=round(sum_.fetch, 3),
        idle=round(sum_.idle, 3),
        cpus=round(sum_.use.cpu, 3),
        queued=_round(sum_.use.queue_share),
        compute_share=_round(sum_.cpu_share),
        where=shorten(sum_.top.where, None) if sum_.top is not None else None,
        read_mb_s=_round(sum_.read_mb_s),
        asked_mb_s=_round(sum_.asked_mb_s),
        storage=sum_.storage,
    )

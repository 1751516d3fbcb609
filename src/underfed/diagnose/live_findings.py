"""Findings of a live verdict: rules of the playbook, with what the window shows of them."""

from __future__ import annotations

import math

from underfed.diagnose.live_decision import Decision
from underfed.diagnose.live_frames import COPY, DATA, STALL
from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_sum import RankSum, Sums, WorkerSum
from underfed.diagnose.live_words import at, percent
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Bound, Finding, Fix, Gain, Observation
from underfed.playbook.registry import find

_BY_KIND = {"logging": "X8", "progress": "X8", "plotting": "X8", "checkpoint": "X6", "compile": "T16"}
_FIXES = {
    "X8": "log every N steps, and from a thread of its own",
    "X6": "write checkpoints less often, or copy to host memory and write from a thread of its own",
    "X5": "keep values on the device and read them every N steps",
    "X9": "move this work off the training thread, or do it every N steps",
    "T16": "keep shapes fixed, or mark what changes as dynamic",
}


def findings_of(found: Sums, decision: Decision) -> list[Finding]:
    """Return the findings that belong to a decision, the cause first."""
    rank = decision.about
    if decision.why in {"throttled", "threads"}:
        # a quota that is too small for even one thread is not a matter of how many there are
        return [_threads(found, decision)] if found.runnable > max(1.0, found.seen.cpus.usable or 1.0) else []
    if rank is None:
        return []
    if decision.why == "data":
        return _data(found, rank)
    if decision.why == "copy":
        return _copies(rank)
    if decision.why in {"host", "late"}:
        return _host(rank, decision.bound)
    return []


def _observe(text: str, value: float | None = None, unit: str | None = None) -> Observation:
    return Observation(source="host", text=text, value=None if value is None else round(value, 3), unit=unit)


def _gain(rank: RankSum, share: float) -> Gain | None:
    """The bound that must hold if a wait went away altogether; the share is taken at two sigma of its samples.

    None where the rest is too small to be told from nothing: then no bound is known.
    """
    # samples of one step are not independent: four of them count as one
    sigma = math.sqrt(max(share * (1 - share), 0.01) / max(rank.samples / 4, 1))
    most = share + 2 * sigma
    return Gain(at_most=1 / (1 - most)) if most < 0.95 else None


def _make(
    rule: str,
    *,
    summary: str,
    fix: str,
    evidence: list[Observation],
    code: str | None = None,
    where: str | None = None,
    gain: Gain | None = None,
    bound: Bound | None = None,
) -> Finding | None:
    known = find(rule)
    if known is None:
        return None
    return known.finding(
        summary=summary, fix=Fix(text=fix, code=code), evidence=evidence, where=where, gain=gain, bound=bound
    )


def _kept(*found: Finding | None) -> list[Finding]:
    return [each for each in found if each is not None]


def _threads(found: Sums, decision: Decision) -> Finding:
    cpus = found.seen.cpus
    usable = cpus.usable or 1.0
    wanted = max(1, int(usable / max(1, len(found.ranks))))
    rule = find("T3")
    assert rule is not None  # noqa: S101  # a rule of the registry
    return rule.finding(
        summary=f"{found.runnable} threads of the training want a CPU, and there are {usable:g}; try {wanted}.",
        fix=Fix(
            text=f"start it with OMP_NUM_THREADS={wanted} MKL_NUM_THREADS={wanted}",
            code=f"torch.set_num_threads({wanted})",
        ),
        evidence=[
            _observe("threads that want a CPU", float(found.runnable), "threads"),
            _observe(f"usable CPUs ({cpus.limited_by or 'all'})", cpus.usable, "CPUs"),
            _observe("wanted CPU time spent waiting for a CPU", found.tree.queue_share, "share"),
            _observe("quota periods that were throttled", found.throttled, "share"),
        ],
        bound=decision.bound,
    )


def _data(found: Sums, rank: RankSum) -> list[Finding]:
    workers = rank.workers
    gain = _gain(rank, rank.data)
    waits = _observe("training thread waiting for input", rank.data, "share")
    if workers is not None and workers.samples:
        return _with_workers(found, rank, workers, gain, waits)
    top = rank.top(DATA - {"start"})
    where = at(top) if top is not None else None
    if rank.share("start") > 0.5 * rank.data:
        fix = "set persistent_workers=True, so that workers live across epochs"
        return _kept(
            _make(
                "T5",
                summary="Most of the wait for input is the start of workers.",
                fix=fix,
                evidence=[waits],
                gain=gain,
            )
        )
    if top is not None and top.kind == "generator":
        summary = "The loop makes its batches on the training thread."
        fix = "move it into a Dataset and let a DataLoader with workers make the batches"
        return _kept(_make("X3", summary=summary, fix=fix, evidence=[waits], where=where, gain=gain))
    if top is None or top.kind != "fetch":
        return []
    spare = found.seen.cpus.usable or 1.0
    count = max(1, math.ceil(min(spare, rank.data / max(1 - rank.data, 0.02))))
    first = _make(
        "T4",
        summary="Batches are made in the training process itself.",
        fix=f"set num_workers={count} or more (now 0)",
        code=f"DataLoader(..., num_workers={count}, persistent_workers=True)",
        evidence=[waits],
        where=where,
        gain=gain,
    )
    share = _inline_compute(rank)
    if share is not None and share < T.waiting_fetch:
        return _kept(first, _slow(where, [_observe("of a fetch that computes", share, "share")], gain))
    return _kept(first)


def _copies(rank: RankSum) -> list[Finding]:
    """Copies to the GPU that the training thread waits for. From outside, pinned memory is not told from pageable."""
    share, top = rank.share(*COPY), rank.top(COPY)
    return _kept(
        _make(
            "T6",
            summary="The training thread waits for copies to the GPU.",
            fix="load with pin_memory=True, and copy with non_blocking=True",
            code="x = x.to(device, non_blocking=True)",
            evidence=[_observe("training thread in copies to the GPU", share, "share")],
            where=at(top) if top is not None else None,
            gain=_gain(rank, share),
        )
    )


def _inline_compute(rank: RankSum) -> float | None:
    """Share of the time in fetches on the training thread in which it used a CPU; None where not known."""
    if rank.thread is None:
        return None
    return min(1.0, max(0.0, rank.thread.cpu - (1 - rank.data)) / max(rank.data, 1e-9))


def _slow(where: str | None, evidence: list[Observation], gain: Gain | None) -> Finding | None:
    return _make(
        "U8",
        summary="Fetches wait for storage, a connection or a sleep rather than compute.",
        fix="stage the data on local NVMe, pack it into larger files, or keep more requests in flight (more workers)",
        evidence=evidence,
        where=where,
        gain=gain,
    )


def _with_workers(
    found: Sums, rank: RankSum, workers: WorkerSum, gain: Gain | None, waits: Observation
) -> list[Finding]:
    share, usable = workers.cpu_share, found.seen.cpus.usable or 1.0
    where = at(workers.top) if workers.top is not None else None
    evidence = [
        waits,
        _observe("workers", float(workers.count), "workers"),
        _observe("time in which a worker fetches", workers.fetch, "share"),
        _observe("of a fetch that computes", share, "share"),
        _observe("CPUs used by the run", found.tree.cpu, f"of {usable:g} CPUs"),
    ]
    if workers.read_mb_s is not None:
        evidence.append(_observe("read from storage by the workers", workers.read_mb_s, "MB/s"))
    if share is None:
        return []
    queued = workers.use.queue_share
    saturated = found.tree.cpu >= T.cpu_saturated * usable or (queued is not None and queued >= L.queued)
    more = min(4 * workers.count, math.ceil(workers.count / max(1 - rank.data, 0.05)))
    if share < T.waiting_fetch:
        few = _make(
            "T4",
            summary=f"{workers.count} workers that wait can be {more} at little cost in CPU.",
            fix=f"set num_workers={more} (now {workers.count})",
            evidence=evidence[:2],
            where=None,
            gain=gain,
        )
        return _kept(_slow(where, evidence, gain), few)
    if saturated:
        return _kept(
            _make(
                "T8",
                summary=f"The work per sample takes {percent(found.tree.cpu / usable)} of the CPUs, and none is free:"
                " more workers cannot help.",
                fix="make the transform cheaper, do it once ahead of time, or move it to the GPU",
                evidence=evidence,
                where=where,
                gain=gain,
            )
        )
    return _kept(
        _make(
            "T4",
            summary=f"{workers.count} workers compute all the time, and CPUs are left.",
            fix=f"set num_workers={min(more, max(workers.count + 1, int(usable)))} (now {workers.count})",
            evidence=evidence,
            where=where,
            gain=gain,
        )
    )


def _host(rank: RankSum, bound: Bound) -> list[Finding]:
    by_rule: dict[str, float] = {}
    places: dict[str, str] = {}
    for spot, count in rank.spots.most_common():
        if spot.kind not in STALL:
            continue
        rule = _BY_KIND.get(spot.kind, "X5" if spot.kind == "sync" else "X9")
        by_rule[rule] = by_rule.get(rule, 0.0) + count / max(rank.samples, 1)
        places.setdefault(rule, at(spot))
    made = [
        _make(
            rule,
            summary=f"This takes {percent(share)} of the training thread's time.",
            fix=_FIXES[rule],
            evidence=[_observe("training thread's time", share, "share")],
            where=places[rule],
            gain=_gain(rank, share),
            bound=bound,
        )
        for rule, share in sorted(by_rule.items(), key=lambda pair: -pair[1])
        if share >= T.worth
    ]
    return _kept(*made)

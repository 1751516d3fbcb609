"""What gates a step when nothing stands in its way from outside: input, the host, or computing."""

from __future__ import annotations

from underfed.diagnose.live_decision import Decision
from underfed.diagnose.live_frames import COMMS, COPY, DATA, STALL, WORK, Spot
from underfed.diagnose.live_gpu import Gpu
from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_sum import RankSum, Sums
from underfed.diagnose.live_words import line, percent
from underfed.diagnose.split import lower
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Bound, Confidence


def grade(rank: RankSum) -> Confidence:
    """Return the confidence that a rank's samples carry."""
    return "high" if rank.samples >= L.samples_high else "medium" if rank.samples >= L.samples_medium else "low"


def on_cpu(rank: RankSum, gpu: Gpu) -> Decision:
    """Decide for a run whose device is the CPU."""
    shares: dict[Bound, float] = {"data": rank.data, "compute": rank.work, "host": rank.stall, "comms": rank.comms}
    best = max(shares, key=lambda bound: shares[bound])
    ranked = sorted(shares.values(), reverse=True)
    confidence = grade(rank)
    if ranked[0] - ranked[1] < L.margin:
        confidence = lower(confidence)
    if gpu.unsure:
        confidence = lower(confidence)
    if best == "compute" or rank.work >= T.compute_share_cpu:
        top = rank.top(WORK)
        text = f"The training thread computes for {percent(rank.work)} of the time: it is well fed."
        text += f" Most of it is at {line(top)}." if top is not None else ""
        return Decision("compute", confidence, text, share=rank.work, about=rank)
    if best == "data":
        return Decision("data", confidence, _data_text(rank), share=rank.data, about=rank, why="data")
    if best == "comms":
        return Decision("comms", lower(confidence), _host_text(rank, COMMS), share=rank.comms, about=rank)
    return Decision("host", confidence, _host_text(rank, STALL), share=rank.stall, about=rank, why="host")


def _data_text(rank: RankSum) -> str:
    text = f"The training thread waits for its input for {percent(rank.data)} of the time."
    workers = rank.workers
    if workers is None or workers.samples == 0:
        top = rank.top(DATA - {"start"})
        if rank.share("start") > 0.5 * rank.data:
            return f"{text} Most of that goes into starting workers anew."
        if top is None:
            return text
        making = "It makes the batches itself" if top.kind in {"fetch", "generator"} else "It asks for them"
        return f"{text} {making}, most often at {line(top)}."
    share = workers.cpu_share
    if workers.top is None or share is None:
        return f"{text} Its {workers.count} workers were seen in no fetch."
    does = "read or wait" if share < T.waiting_fetch else "compute" if share > T.computing_fetch else "work"
    return (
        f"{text} Its {workers.count} worker{'s' if workers.count != 1 else ''} {does} for"
        f" {percent(workers.fetch)} of the time, most often at {line(workers.top)}."
    )


def _host_text(rank: RankSum, kinds: frozenset[str]) -> str:
    total = rank.share(*kinds)
    by_place: dict[str, float] = {}
    for spot, count in rank.spots.items():
        if spot.kind in kinds:
            by_place[spot.where] = by_place.get(spot.where, 0.0) + count / rank.samples
    top = rank.top(kinds)
    text = f"The training thread spends {percent(total)} of the time on other work than the step"
    if top is None:
        return f"{text}."
    return f"{text}; most of it, {percent(by_place[top.where])}, at {line(top)} ({words_of(top)})."


_WORDS = {
    "checkpoint": "writes a checkpoint",
    "logging": "logs",
    "progress": "draws a progress bar",
    "plotting": "plots",
    "compile": "compiles",
    "sleep": "sleeps",
    "lock": "waits for a lock or a thread",
    "wait": "waits for another process or a connection",
    "sync": "takes values from tensors",
    "own": "its own Python code",
    "import": "imports modules",
    "comms": "a collective",
    "rendezvous": "waits for the other ranks to join",
}


def words_of(spot: Spot) -> str:
    """Say what a kind of time is."""
    return _WORDS.get(spot.kind, spot.kind)


def _spinning(found: Sums, rank: RankSum, gpu: Gpu) -> Decision | None:
    """A host that stands while a kernel runs that never touches memory: it waits on the device for what never comes."""
    if not gpu.spins or rank.moves or found.seen.seconds < L.still_seconds:
        return None
    top = rank.top(frozenset(rank.kinds))
    where = f" at {line(top)}" if top is not None else ""
    text = f"The training thread stands{where}, and a kernel runs all the time that touches no memory ({gpu.words})."
    text += " That is how a collective looks whose other ranks do not come."
    head = f"hung on the GPU (nothing moved for {found.seen.seconds:.0f} s)"
    return Decision("comms", "medium", text, head=head, about=rank, why="hung")


def on_gpu(found: Sums, rank: RankSum, gpu: Gpu) -> Decision:
    """Decide for a run on a GPU: the device says whether it waits, the stacks say for what."""
    confidence = grade(rank)
    if gpu.busy is None:
        text = f"The GPU's use is not known ({gpu.reason or 'no reading'}); "
        text += f"the host side waits for input for {percent(rank.data)} of the time."
        settle = f"underfed run on the same command, or attach to {found.seen.target.pid} where NVML answers"
        return Decision("unknown", "low", f"I cannot tell what gates this run. {text}", settle=settle, about=rank)
    stuck = _spinning(found, rank, gpu)
    if stuck is not None:
        return stuck
    if gpu.full:
        text = f"The GPU computes: {gpu.words}. It is well fed."
        return Decision("compute", confidence if gpu.sure else lower(confidence), text, share=gpu.busy, about=rank)
    copies = rank.share(*COPY)
    waits: dict[Bound, float] = {"data": rank.data + copies, "host": rank.stall + rank.work - copies}
    if not gpu.idle:
        return Decision(
            "unknown",
            "low",
            f"I cannot tell what gates this run: {gpu.words}, which is neither idle nor full. The host waits for input"
            f" for {percent(rank.data)} of the time.",
            settle="underfed run --window 10 -- COMMAND, which times the device's work itself",
            about=rank,
        )
    if rank.call is not None and rank.call_s >= L.one_call and rank.call_s >= L.starting * found.seen.seconds:
        return Decision(
            "unknown",
            "low",
            f"I cannot tell yet what gates this run: it stood for {rank.call_s:.0f} s at {line(rank.call)}, and the GPU"
            f" had next to nothing to do ({gpu.words}). A run that still starts looks like this: it loads kernels,"
            " searches for algorithms or compiles.",
            head="starting",
            settle=f"underfed attach {found.seen.target.pid} again, once it trains",
            about=rank,
        )
    if abs(waits["data"] - waits["host"]) < L.margin:
        confidence = lower(confidence)
    if waits["data"] >= waits["host"] and copies > rank.data:
        top = rank.top(COPY)
        text = f"The training thread copies to the GPU for {percent(copies)} of the time, and waits for it"
        text = f"{text}; most often at {line(top)}." if top is not None else f"{text}."
        return Decision("data", confidence, f"{text} The GPU: {gpu.words}.", share=copies, about=rank, why="copy")
    if waits["data"] >= waits["host"]:
        return Decision(
            "data", confidence, f"{_data_text(rank)} The GPU: {gpu.words}.", share=rank.data, about=rank, why="data"
        )
    if rank.stall >= rank.work:
        text, why = _host_text(rank, STALL), "host"
    else:
        top = rank.top(WORK - COPY)
        share = percent(rank.work - copies)
        text = f"The training thread launches work for {share} of the time, too slowly to fill the GPU"
        text, why = f"{text}; most often at {line(top)}." if top is not None else f"{text}.", "launch"
    return Decision(
        "host", lower(confidence), f"{text} The GPU: {gpu.words}.", share=waits["host"], about=rank, why=why
    )

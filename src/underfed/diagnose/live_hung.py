"""Hung or slow: stacks that never moved over the window, on threads that used no CPU."""

from __future__ import annotations

from underfed.diagnose.live_decision import Decision
from underfed.diagnose.live_frames import COMMS, Spot, training_spot
from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_sum import RankSum, Sums
from underfed.diagnose.live_words import line
from underfed.diagnosis import Bound

_ENDLESS = {"lock", "comms", "rendezvous"}


def stands(rank: RankSum) -> bool:
    """Return whether a rank did not move: one stack in all samples, and no CPU time to speak of in the process."""
    if rank.samples < L.samples_any or rank.moves:
        return False
    thread = rank.thread.cpu if rank.thread is not None else 0.0
    return thread < L.still_cpu and rank.process.cpu < 5 * L.still_cpu


def hung(found: Sums) -> Decision | None:
    """Decide where every rank that was seen stands still, and its workers as well."""
    known = [rank for rank in found.ranks if rank.samples >= L.samples_any]
    if not known or found.seen.seconds < L.still_seconds or not all(stands(rank) for rank in known):
        return None
    if any(rank.workers is not None and rank.workers.moves for rank in known):
        return None
    spots = {rank.member.pid: training_spot(rank.stack, found.seen.sources) for rank in known}
    seconds = f"{found.seen.seconds:.0f} s"
    several = max([len(found.ranks), *(rank.member.world or 1 for rank in known)]) > 1
    inside = [rank for rank in known if _in_collective(spots[rank.member.pid], several)]
    outside = [rank for rank in known if rank not in inside]
    first = spots[known[0].member.pid]
    bound: Bound = "comms" if inside else "data" if first.kind in {"data", "fetch"} else "host"
    if inside and outside:
        text = _missing(inside, outside, spots)
    elif inside:
        text = _all_inside(inside, spots)
    else:
        text = f"{known[0].member.name.capitalize()} stands at {line(first)} ({_what(first)})."
        workers = known[0].workers
        if first.kind == "data" and workers is not None and workers.top is not None:
            text += f" Its workers stand at {line(workers.top)}."
        elif first.kind == "data" and workers is not None:
            text += " Its workers wait as well."
    endless = any(
        spot.kind in _ENDLESS or rank in inside or _locked(rank, spot)
        for rank, spot in zip(known, spots.values(), strict=True)
    )
    state = "hung" if endless else "stands still"
    longer = f"underfed attach {found.seen.target.pid} --seconds 60: one call longer than the window looks the same"
    return Decision(
        bound,
        "high" if endless and found.seen.ended == "window" else "medium",
        f"Nothing moved for {seconds}, and no CPU was used. {text}",
        head=f"{state} (nothing moved for {seconds})",
        settle=None if endless else longer,
        about=known[0],
        why="hung",
    )


def _in_collective(spot: Spot, several: bool) -> bool:
    """Return whether a rank that stands still does so in a collective: gradients are exchanged inside the backward
    pass, and one of several ranks that uses no CPU there waits for the others.
    """
    return spot.kind in COMMS or (several and spot.kind == "backward")


def _locked(rank: RankSum, spot: Spot) -> bool:
    """Return whether a wait has no end of its own: a lock by the kernel's word, or workers that stand in one."""
    if spot.kind in {"own", "wait"}:
        thread = rank.member.training
        waits = rank.member.life.waits.get(thread.tid if thread is not None and thread.tid else rank.member.pid)
        return waits is not None and all(name.startswith("futex") for name in waits)
    return spot.kind == "data" and rank.workers is not None and rank.workers.stuck


def _what(spot: Spot) -> str:
    words = {
        "lock": "waits for a lock, a queue or a thread",
        "wait": "waits for another process or a connection",
        "sleep": "sleeps",
        "data": "waits for a batch from its workers",
        "fetch": "makes a batch",
        "sync": "waits for the device",
    }
    return words.get(spot.kind, "in one call")


def _missing(inside: list[RankSum], outside: list[RankSum], spots: dict[int, Spot]) -> str:
    names = ", ".join(rank.member.name for rank in inside)
    text = f"{names.capitalize()} stand{'s' if len(inside) == 1 else ''} in a collective at"
    text += f" {line(spots[inside[0].member.pid])}; "
    others = [f"{rank.member.name} is not in it but at {line(spots[rank.member.pid])}" for rank in outside[:4]]
    return text + ", ".join(others) + "."


def _all_inside(inside: list[RankSum], spots: dict[int, Spot]) -> str:
    places = {rank.member.name: line(spots[rank.member.pid]) for rank in inside}
    if len(inside) == 1:
        name, place = next(iter(places.items()))
        return f"{name.capitalize()} stands in a collective at {place}; the other ranks were not seen here."
    if len(set(places.values())) == 1:
        place = next(iter(places.values()))
        return f"All ranks seen stand in the same collective at {place}: a rank elsewhere, or the network, is missing."
    listed = "; ".join(f"{name} at {place}" for name, place in list(places.items())[:4])
    return f"The ranks stand in different collectives, which never meet: {listed}."

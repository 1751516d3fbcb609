"""Who is who below a launcher: ranks, loader workers, helpers; and which thread of a rank trains."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from underfed.diagnose.live_frames import COMMS, DATA, WORK, is_worker, training_spot
from underfed.observe.live.stacks import Stack, ThreadStacks
from underfed.observe.live.target import is_launcher
from underfed.observe.live.window import Life, Seen

_HELPERS = ("resource_tracker", "forkserver", "_inductor/compile_worker", "compile_worker")
#: CPU time over the window, in ms, below which a process that starts ranks does nothing itself.
_IDLE_MS = 100


@dataclass
class Member:
    """One process and what it is: `rank` trains, `worker` loads, `launcher` starts others, `helper`, or `other`."""

    life: Life
    role: str
    stacks: list[ThreadStacks] = field(default_factory=list)
    rank: int | None = None
    world: int | None = None
    training: ThreadStacks | None = None

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.life.first.pid

    @property
    def name(self) -> str:
        """How the process is called in text."""
        return f"rank {self.rank}" if self.rank is not None else f"process {self.pid}"


def members(seen: Seen) -> list[Member]:
    """Give every process its role, from its stacks where there are some, else from names and the tree."""
    by_pid: dict[int, list[ThreadStacks]] = {}
    owners = {tid: life.first.pid for life in seen.lives for tid in life.threads_last}
    for thread in seen.sampling.threads:
        pid = thread.pid if thread.pid is not None else owners.get(thread.tid or -1, seen.target.pid)
        by_pid.setdefault(pid, []).append(thread)
    found = [Member(life, "other", by_pid.get(life.first.pid, [])) for life in seen.lives]
    known = {member.pid: member for member in found}
    for member in found:
        member.role = _role(member, known)
        variables = member.life.variables or {}
        member.rank, member.world = (_number(variables.get(name)) for name in ("RANK", "WORLD_SIZE"))
    _settle(found, seen)
    for member in found:
        if member.role == "rank":
            member.training = training_thread(member, seen)
    return found


def _number(word: str | None) -> int | None:
    return int(word) if word and word.isascii() and word.isdigit() and len(word) < 7 else None


def _role(member: Member, known: dict[int, Member]) -> str:
    words, life = member.life.words, member.life
    if any(part in word for word in words[:4] for part in _HELPERS):
        return "helper"
    if not life.python:
        return "other"
    if any(is_worker(stack) for thread in member.stacks for stack in thread.samples[:20]):
        return "worker"
    if life.first.comm == "pt_data_worker" or life.last.comm == "pt_data_worker":
        return "worker"
    if is_launcher(words):
        return "launcher"
    above = known.get(life.first.ppid)
    if not member.stacks and above is not None and above.life.python and not is_launcher(above.life.words):
        # without stacks: a copy of its parent, or a child that multiprocessing spawned
        if words == above.life.words or "--multiprocessing-fork" in words:
            return "worker" if (life.variables or {}).get("RANK") is None or _same_rank(life, above.life) else "rank"
        return "other"
    return "rank"


def _same_rank(life: Life, above: Life) -> bool:
    return (life.variables or {}).get("RANK") == (above.variables or {}).get("RANK")


def _settle(found: list[Member], seen: Seen) -> None:
    """Of processes above each other only those that train are ranks: a parent that waits starts them, a child that
    takes no part in the step is the user's own helper.
    """
    known = {member.pid: member for member in found}
    for member in found:
        if member.role != "rank":
            continue
        above = _rank_above(member, known)
        if above is None:
            continue
        used = above.life.last.utime_ms - above.life.first.utime_ms
        if not _steps(above, seen) if above.stacks else used < _IDLE_MS:
            above.role = "launcher"
        elif not _steps(member, seen):
            member.role = "child"
    ranks = [member for member in found if member.role == "rank"]
    if any(member.life.torch for member in ranks):
        for member in ranks:
            if member.life.torch is False and not _steps(member, seen):
                member.role = "child"


def _rank_above(member: Member, known: dict[int, Member]) -> Member | None:
    above, passed = known.get(member.life.first.ppid), 0
    while above is not None and above.role != "rank" and passed < len(known):
        above, passed = known.get(above.life.first.ppid), passed + 1
    return above if above is not None and above.role == "rank" else None


def _steps(member: Member, seen: Seen) -> bool:
    """Return whether any thread of a process was seen in a part of a training step."""
    kinds = WORK | DATA | COMMS
    stacks = {stack for thread in member.stacks for stack in thread.samples}
    return any(training_spot(stack, seen.sources).kind in kinds and not _background(stack) for stack in stacks)


def training_thread(member: Member, seen: Seen) -> ThreadStacks | None:
    """Return the thread that trains: the main one, unless another is seen in torch's step more often."""
    scored: Counter[int] = Counter()
    for at, thread in enumerate(member.stacks):
        for stack, count in Counter(thread.samples).items():
            if training_spot(stack, seen.sources).kind in WORK | DATA | COMMS and not _background(stack):
                scored[at] += count
    main = next((at for at, thread in enumerate(member.stacks) if thread.tid == member.pid), None)
    if main is None:
        main = next((at for at, thread in enumerate(member.stacks) if thread.name == "MainThread"), None)
    best = max(scored, key=lambda at: scored[at], default=None)
    if main is not None and (best is None or scored[main] >= 0.2 * scored[best]):
        return member.stacks[main]
    return member.stacks[best] if best is not None else next(iter(member.stacks), None)


def _background(stack: Stack) -> bool:
    """Return whether a stack belongs to one of the loader's own threads."""
    return any(frame.function in {"_pin_memory_loop", "_feed", "_serve"} for frame in stack)

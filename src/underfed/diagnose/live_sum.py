"""Sums of one window: where each rank's training thread was, what its workers did, what the CPUs gave."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from underfed.diagnose.live_frames import COMMS, DATA, STALL, WORK, Spot, inside_fetch, training_spot, worker_spot
from underfed.diagnose.live_roles import Member, members
from underfed.observe.live.proc import Thread
from underfed.observe.live.stacks import Stack
from underfed.observe.live.window import Life, Seen

#: Share of the samples in one stack from which a thread does not move; the rest may be samples that were read badly.
_STILL = 0.98
#: Wake-ups a second that a thread in one wait may have: some waits look up now and then (a queue's timeout).
_WAKES = 1.0


@dataclass
class Use:
    """CPU use over the window, in CPUs: on one, and waiting for one; None where the kernel does not count it."""

    cpu: float
    run: float | None = None
    wait: float | None = None

    @property
    def queue_share(self) -> float | None:
        """Share of the time in which it wanted a CPU and had none."""
        if self.run is None or self.wait is None:
            return None
        return self.wait / (self.run + self.wait) if self.run + self.wait > 0 else 0.0


@dataclass
class RankSum:
    """One rank. Shares are of its training thread's samples; `workers` are those of its own loader.

    `call` is the line of the model's work at which the thread stood longest without leaving it, for `call_s` seconds.
    """

    member: Member
    samples: int
    kinds: Counter[str] = field(default_factory=Counter)
    spots: Counter[Spot] = field(default_factory=Counter)
    holding: Counter[Spot] = field(default_factory=Counter)
    thread: Use | None = None
    process: Use = field(default_factory=lambda: Use(0.0))
    moves: bool = True
    stack: Stack = ()
    workers: WorkerSum | None = None
    children: int = 0
    call: Spot | None = None
    call_s: float = 0.0

    def share(self, *kinds: str) -> float:
        """Share of the samples of some kinds."""
        return sum(self.kinds[kind] for kind in kinds) / self.samples if self.samples else 0.0

    @property
    def data(self) -> float:
        """Share in which the thread waits for its input or makes it."""
        return self.share(*DATA)

    @property
    def work(self) -> float:
        """Share in model, backward and optimizer code."""
        return self.share(*WORK)

    @property
    def comms(self) -> float:
        """Share in calls of collectives."""
        return self.share(*COMMS)

    @property
    def stall(self) -> float:
        """Share in everything else."""
        return self.share(*STALL)

    def top(self, kinds: frozenset[str] | set[str]) -> Spot | None:
        """The spot of some kinds with most samples."""
        known = {spot: count for spot, count in self.spots.items() if spot.kind in kinds}
        return max(known, key=lambda spot: known[spot], default=None)


@dataclass
class WorkerSum:
    """The loader's workers of one rank, means over them: shares of the time, and the line with most of it."""

    count: int
    samples: int
    fetch: float
    idle: float
    use: Use
    moves: bool
    stuck: bool
    top: Spot | None
    top_share: float
    read_mb_s: float | None
    asked_mb_s: float | None
    storage: str | None
    pids: list[int]

    @property
    def cpu_share(self) -> float | None:
        """Share of a fetch that computes, were a CPU always free; None where nothing was fetched or counted."""
        if self.fetch <= 0.02:
            return None
        ran = self.use.run if self.use.run is not None else self.use.cpu
        free = max(self.fetch - (self.use.wait or 0.0), ran, 1e-9)
        return min(1.0, ran / free)


@dataclass
class Sums:
    """One window in numbers."""

    seen: Seen
    members: list[Member]
    ranks: list[RankSum]
    tree: Use
    machine: float | None
    throttled: float | None
    pressure: dict[str, float]
    runnable: int


def use_of(life: Life, seen: Seen, tid: int | None = None) -> Use:
    """Return the CPU use of a process, or of one of its threads, over the window."""
    seconds = max(seen.seconds, 1e-3)
    tids = [tid] if tid is not None else list(life.threads_last)
    cpu = ran = waited = 0.0
    counted = bool(tids)
    for each in tids:
        last, first = life.threads_last.get(each), life.threads_first.get(each)
        if last is None:
            continue
        begin = first or Thread(each, "", "", 0, 0.0, 0.0, 0)
        if first is None and last.run_ms is None:
            begin = begin._replace(run_ms=None, wait_ms=None)
        cpu += last.cpu_ms - begin.cpu_ms
        if last.run_ms is None or last.wait_ms is None or begin.run_ms is None or begin.wait_ms is None:
            counted = False
            continue
        ran, waited = ran + last.run_ms - begin.run_ms, waited + last.wait_ms - begin.wait_ms
    if tid is None:
        # threads that ended within the window are in the process's own counter alone
        whole = life.last.utime_ms + life.last.stime_ms - life.first.utime_ms - life.first.stime_ms
        cpu = max(cpu, float(whole))
    scale = 1 / (1000 * seconds)
    return Use(cpu * scale, ran * scale if counted else None, waited * scale if counted else None)


def _still(life: Life, tid: int, stacks: list[Stack], seen: Seen) -> tuple[bool, Stack]:
    """Return whether a thread stood in one place all the time, and the stack with most of its samples.

    A loop that waits in one place for nearly all of the time looks the same in samples, but it wakes up once a step.
    """
    if not stacks:
        return False, ()
    counted = Counter(stacks)
    top, count = counted.most_common(1)[0]
    first, last = life.threads_first.get(tid), life.threads_last.get(tid)
    if first is None or last is None or first.sleeps is None or last.sleeps is None:
        return len(counted) == 1, top
    woke = last.sleeps - first.sleeps
    return count >= _STILL * len(stacks) and woke <= max(2.0, _WAKES * seen.seconds), top


def _rank(member: Member, seen: Seen, workers: list[Member], children: int) -> RankSum:
    thread = member.training
    samples = thread.samples if thread is not None else []
    tid = thread.tid if thread is not None and thread.tid is not None else member.pid
    still, stack = _still(member.life, tid, samples, seen)
    found = RankSum(member, len(samples), moves=not still, stack=stack, children=children)
    for each, count in Counter(samples).items():
        spot = training_spot(each, seen.sources)
        found.kinds[spot.kind] += count
        found.spots[spot] += count
    # who holds the lock is sampled less often
    scale = max(1, seen.sampling.rate // seen.holding.rate) if seen.holding is not None else 1
    for other in seen.holding.threads if seen.holding is not None else []:
        if thread is not None and other.tid == thread.tid and other.tid is not None:
            for each, count in Counter(other.samples).items():
                found.holding[training_spot(each, seen.sources)] += scale * count
    found.thread = use_of(member.life, seen, tid) if tid in member.life.threads_last else None
    found.process = use_of(member.life, seen)
    _native(found)
    found.call, found.call_s = _longest_call(samples, seen)
    found.workers = _workers(workers, seen)
    return found


def _longest_call(samples: list[Stack], seen: Seen) -> tuple[Spot | None, float]:
    """Return the longest stretch at one line of the model's work, and its seconds; one odd sample does not end it."""
    best: tuple[Spot | None, int] = None, 0
    spot: Spot | None = None
    length = odd = 0
    for stack in samples:
        here = training_spot(stack, seen.sources)
        if spot is not None and (here.kind, here.where) == (spot.kind, spot.where):
            length, odd = length + 1 + odd, 0
        elif spot is not None and not odd:
            odd = 1
        else:
            spot, length, odd = here, 1, 0
        if spot.kind in WORK and length > best[1]:
            best = spot, length
    return best[0], best[1] * seen.seconds / len(samples) if samples else 0.0


def _native(found: RankSum) -> None:
    """Time at the user's own lines that computes without the interpreter's lock is native code: tensor operations."""
    own = [spot for spot in found.spots if spot.kind == "own"]
    busy = found.thread is not None and found.thread.cpu > 0.5 * found.share("own", *WORK)
    for spot in own:
        count = found.spots[spot]
        if busy and found.holding and found.holding[spot] < 0.3 * count:
            del found.spots[spot]
            found.kinds["own"] -= count
            found.kinds["tensor"] += count
            found.spots[spot._replace(kind="tensor")] += count


def _workers(found: list[Member], seen: Seen) -> WorkerSum | None:
    if not found:
        return None
    spots: Counter[Spot] = Counter()
    still, stuck = True, False
    for member in found:
        main = next((thread for thread in member.stacks if thread.tid == member.pid), None)
        for stack, count in Counter(main.samples if main is not None else []).items():
            spots[worker_spot(stack, seen.sources)] += count
        stands, stack = _still(member.life, member.pid, main.samples if main is not None else [], seen)
        still = still and (main is None or stands)
        inside = inside_fetch(stack)
        stuck = stuck or (stands and bool(inside) and training_spot(inside, seen.sources).kind == "lock")
    samples = sum(spots.values())
    fetching = Counter({spot: count for spot, count in spots.items() if spot.kind in {"fetch", "collate"}})
    by_line: Counter[str] = Counter()
    for spot, count in fetching.items():
        by_line[spot.where] += count
    line, most = by_line.most_common(1)[0] if by_line else (None, 0)
    top = max((spot for spot in fetching if spot.where == line), key=lambda spot: fetching[spot], default=None)
    uses = [use_of(member.life, seen, member.pid) for member in found]
    runs, waits = [use.run for use in uses if use.run is not None], [use.wait for use in uses if use.wait is not None]
    storage: Counter[str] = Counter()
    for member in found:
        storage.update(member.life.storage)
    count = len(found)
    return WorkerSum(
        count=count,
        samples=samples,
        fetch=sum(fetching.values()) / samples if samples else 0.0,
        idle=sum(number for spot, number in spots.items() if spot.kind == "idle") / samples if samples else 0.0,
        use=Use(
            sum(use.cpu for use in uses) / count,
            sum(runs) / count if len(runs) == count else None,
            sum(waits) / count if len(waits) == count else None,
        ),
        moves=not still,
        stuck=stuck,
        top=top,
        top_share=most / sum(fetching.values()) if fetching else 0.0,
        read_mb_s=_rate(found, seen, "read_bytes"),
        asked_mb_s=_rate(found, seen, "rchar"),
        storage=storage.most_common(1)[0][0] if storage else None,
        pids=[member.pid for member in found],
    )


def _rate(found: list[Member], seen: Seen, name: str) -> float | None:
    """Return MB/s of an I/O counter over all processes given; None where one may not be read."""
    pairs = [(getattr(member.life.first, name), getattr(member.life.last, name)) for member in found]
    if any(first is None or last is None for first, last in pairs):
        return None
    return float(sum(last - first for first, last in pairs)) / 1e6 / max(seen.seconds, 1e-3)


def sums(seen: Seen) -> Sums:
    """Put a window into numbers."""
    found = members(seen)
    ranks = []
    for member in found:
        if member.role == "rank":
            own = [each for each in found if each.role == "worker" and each.life.first.ppid == member.pid]
            children = sum(each.role == "child" and each.life.first.ppid == member.pid for each in found)
            ranks.append(_rank(member, seen, own, children))
    ranks.sort(key=lambda rank: (rank.member.rank is None, rank.member.rank or 0, rank.member.pid))
    uses = [use_of(life, seen) for life in seen.lives]
    runs, waits = [use.run for use in uses if use.run is not None], [use.wait for use in uses if use.wait is not None]
    tree = Use(
        sum(use.cpu for use in uses),
        sum(runs) if len(runs) == len(uses) else None,
        sum(waits) if len(waits) == len(uses) else None,
    )
    busy = None
    if seen.before.busy is not None and seen.after.busy is not None and seen.cpus.visible:
        passed = seen.after.busy[1] - seen.before.busy[1]
        busy = seen.cpus.visible * (seen.after.busy[0] - seen.before.busy[0]) / passed if passed > 0 else None
    return Sums(
        seen=seen,
        members=found,
        ranks=ranks,
        tree=tree,
        machine=busy,
        throttled=_throttled(seen),
        pressure=_pressure(seen),
        runnable=_wanting(found, seen),
    )


def _throttled(seen: Seen) -> float | None:
    """Share of the quota's periods in the window in which the group was stopped; None without a quota or a count."""
    before, after = seen.before.throttle, seen.after.throttle
    if before is None or after is None or seen.cpus.quota is None:
        return None
    periods = after.nr_periods - before.nr_periods
    return (after.nr_throttled - before.nr_throttled) / periods if periods > 0 else 0.0


def _pressure(seen: Seen) -> dict[str, float]:
    """Share of the window in which some task waited for a resource, of the group where the kernel keeps that."""
    found = {}
    for before, after in ((seen.before.system, seen.after.system), (seen.before.group, seen.after.group)):
        for name in before or {}:
            first, last = (before or {}).get(name), (after or {}).get(name)
            if first and last and first.some_us is not None and last.some_us is not None:
                found[name] = (last.some_us - first.some_us) / 1e6 / max(seen.seconds, 1e-3)
    return found


def _wanting(found: list[Member], seen: Seen) -> int:
    """Return how many threads of the ranks wanted a CPU for a good part of the window."""
    wanting = 0
    for member in found:
        if member.role == "rank":
            for tid in member.life.threads_last:
                use = use_of(member.life, seen, tid)
                wanting += (use.run or use.cpu) + (use.wait or 0.0) > 0.2
    return wanting

"""The processes below a pid, with what /proc counts for each. No role is guessed here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.files import base, field, integer, list_size, table, text

_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK") or 1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FULL_SCAN_EVERY = 30


class Process(NamedTuple):
    """One process. Times in ms (`start_ms` since boot), sizes in bytes; None where /proc did not tell.

    `run_ns` and `wait_ns` (on a run queue, wanting a CPU) are the main thread's; `rchar` counts bytes that read calls
    returned, `read_bytes` those that came from storage; `state` is the main thread's letter.
    """

    pid: int
    ppid: int
    comm: str
    state: str
    utime_ms: int
    stime_ms: int
    threads: int
    rss: int
    majflt: int
    start_ms: int
    rchar: int | None
    read_bytes: int | None
    affinity: int | None
    run_ns: int | None
    wait_ns: int | None


class _Stat(NamedTuple):
    comm: str
    state: str
    ppid: int
    majflt: int
    utime: int
    stime: int
    threads: int
    start: int
    rss: int


def _stat(prefix: str, pid: int) -> _Stat | None:
    content = text(f"{prefix}/proc/{pid}/stat")
    if content is None:
        return None
    # the name can hold blanks and brackets; it ends at the last one
    head, _, tail = content.rpartition(")")
    words = tail.split()
    numbers = [integer(words[at]) if at < len(words) else None for at in (1, 9, 11, 12, 17, 19, 21)]
    known = [number for number in numbers if number is not None]
    if len(known) != 7 or "(" not in head:
        return None
    ppid, majflt, utime, stime, threads, start, rss = known
    return _Stat(head.partition("(")[2], words[0], ppid, majflt, utime, stime, threads, start, rss)


def _process(prefix: str, pid: int, stat: _Stat) -> Process:
    folder = f"{prefix}/proc/{pid}"
    io = table(f"{folder}/io")
    queue = [integer(word) for word in (text(f"{folder}/schedstat") or "").split()]
    return Process(
        pid=pid,
        ppid=stat.ppid,
        comm=stat.comm,
        state=stat.state,
        utime_ms=stat.utime * _TICK_MS,
        stime_ms=stat.stime * _TICK_MS,
        threads=stat.threads,
        rss=stat.rss * _PAGE,
        majflt=stat.majflt,
        start_ms=stat.start * _TICK_MS,
        rchar=io.get("rchar"),
        read_bytes=io.get("read_bytes"),
        affinity=list_size(field(text(f"{folder}/status"), "Cpus_allowed_list")),
        run_ns=queue[0] if len(queue) == 3 else None,
        wait_ns=queue[1] if len(queue) == 3 else None,
    )


class Tree:
    """Follows the processes below a pid. One that was below it once stays, also when its parent ends before it."""

    def __init__(self, pid: int, root: Path = Path("/")) -> None:
        self.pid = pid
        self._prefix = base(root)
        self._started: dict[int, int] = {}
        self._first: int | None = None
        self._foreign: set[int] = set()
        self._reads = 0

    def read(self) -> list[Process]:
        """Return the pid itself and all processes below it that are alive now, in order of pid."""
        try:
            present = {int(name) for name in os.listdir(f"{self._prefix}/proc") if name.isdecimal()}
        except OSError:
            return []
        # others are looked at once, not every second; a full look now and then finds those that took a used pid
        self._foreign = set() if self._reads % _FULL_SCAN_EVERY == 0 else self._foreign & present
        self._reads += 1
        stats = {pid: stat for pid in present - self._foreign if (stat := _stat(self._prefix, pid)) is not None}
        if self._first is None and self.pid in stats:
            self._first = self._started[self.pid] = stats[self.pid].start
        ours = {pid for pid, stat in stats.items() if self._started.get(pid) == stat.start}
        waiting = sorted(((pid, stats[pid].ppid) for pid in stats.keys() - ours), key=lambda pair: stats[pair[0]].start)
        found = True
        while found:
            below = {pid for pid, parent in waiting if parent in ours}
            found = bool(below - ours)
            ours |= below
        self._started = {pid: stats[pid].start for pid in ours}
        self._foreign |= present - ours
        return [_process(self._prefix, pid, stats[pid]) for pid in sorted(ours)]


def process_tree(pid: int, root: Path = Path("/")) -> list[Process]:
    """Return a process and all those below it, in order of pid; empty where it is gone."""
    return Tree(pid, root).read()


def queue_wait(pid: int, root: Path = Path("/")) -> tuple[int, int] | None:
    """Return the time that all living threads of a process ran and waited for a CPU, in ns; None without permission."""
    folder = f"{base(root)}/proc/{pid}/task"
    try:
        threads = os.listdir(folder)
    except OSError:
        return None
    ran, waited, seen = 0, 0, False
    for thread in threads:
        words = [integer(word) for word in (text(f"{folder}/{thread}/schedstat") or "").split()]
        if len(words) == 3 and words[0] is not None and words[1] is not None:
            ran, waited, seen = ran + words[0], waited + words[1], True
    return (ran, waited) if seen else None

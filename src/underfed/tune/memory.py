"""The memory of a run as it goes: what its processes hold, what a worker holds alone, and what there is room for."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from underfed.tune.model import Room

#: Share of the free memory that a run may take: what else the machine does needs some.
MARGIN = 0.9
_EVERY_S = 1.0
_LOG = re.compile(r"p(\d+)-")


@dataclass(kw_only=True)
class Watch:
    """Looks at a run's processes when called, about once a second; True once they hold more than `limit` bytes.

    `enough` is asked as well, so that this can stand where it does. Processes are those that write into `folder`, and
    all below them: children are loader workers.
    """

    folder: Path
    limit: int | None
    enough: Callable[[], bool]
    total: int = 0
    main: int = 0
    worker: int = 0
    ranks: int = 1
    over: bool = False
    _next: float = field(default=0.0, repr=False)

    def __call__(self) -> bool:
        """Look, and tell whether to end the run."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY_S
            self._look()
            self.over = self.limit is not None and self.total > self.limit
        return self.over or self.enough()

    def _look(self) -> None:
        pids = {int(found[1]) for path in self.folder.glob("p*.jsonl") if (found := _LOG.match(path.name))}
        processes = {pid: process for pid in pids if (process := _process(pid)) is not None}
        tops = [one for one in processes.values() if _parent(one) not in processes]
        below = {child.pid: child for one in tops for child in _children(one)}
        sizes = {pid: _sizes(one) for pid, one in {**processes, **below}.items()}
        known = {pid: size for pid, size in sizes.items() if size is not None}
        if not known:
            return
        total = sum(shared for _, shared in known.values())
        workers = [alone for pid, (alone, _) in known.items() if pid in below]
        self.ranks = max(1, len(tops))
        self.worker = max(self.worker, *workers, 0) if workers else self.worker
        if total > self.total:
            self.total, self.main = total, total - sum(workers)


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.Error:
        return []


def _sizes(process: psutil.Process) -> tuple[int, int] | None:
    """Bytes that a process holds alone, and its fair share of all that it uses; None where it is gone or not ours."""
    try:
        found = process.memory_full_info()
    except (psutil.Error, OSError):
        return None
    return int(found.uss), int(getattr(found, "pss", found.rss))


def limit_of(host: list[dict[str, Any]], asked: int | None) -> int | None:
    """Return the bytes that a run may hold: what the tightest cgroup and the machine had free at its start, less a
    margin, and no more than was asked for. None where nothing says.
    """
    sizes: dict[str, Any] = next(
        (line["mem"] for line in host if line.get("k") == "host" and isinstance(line.get("mem"), dict)), {}
    )
    numbers = {name: value for name, value in sizes.items() if isinstance(value, int) and 0 <= value < 2**60}
    free = [numbers["available"]] if "available" in numbers else []
    if "limit" in numbers and "used" in numbers:
        free.append(max(0, numbers["limit"] - numbers["used"] + numbers.get("cache", 0)))
    known = [round(MARGIN * min(free))] if free else []
    return min([*known, *([asked] if asked is not None else [])], default=None)


def room(watch: Watch, limit: int | None, before: Room | None = None) -> Room:
    """Return what is known of memory after a run, with what the runs before it showed of a worker."""
    seen = [size for size in (watch.worker, (before.worker if before else None) or 0) if size]
    main = max(watch.main, (before.main if before else None) or 0)
    return Room(limit=limit, main=main or None, worker=max(seen, default=None), ranks=watch.ranks)


def kills(host: list[dict[str, Any]]) -> int:
    """Return how many processes of the group the kernel killed for memory during a run."""
    counts = [
        line["mem"]["oom_kills"]
        for line in host
        if isinstance(line.get("mem"), dict) and isinstance(line["mem"].get("oom_kills"), int)
    ]
    return max(0, counts[-1] - counts[0]) if counts else 0


#: How torch says that a worker was killed, that it was by a full /dev/shm, and that it is gone for whatever reason.
_KILLED = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: Killed")
_SHARED = re.compile(r"out of shared memory|is killed by signal: Bus error")
_GONE = re.compile(r"DataLoader worker \(pid(\(s\))? [\d, ]+\) exited unexpectedly")


def was_killed(code: int, output: str, host: list[dict[str, Any]]) -> str | None:
    """Say how a run was ended by the kernel, or None where it was not."""
    if kills(host):
        return "the kernel killed a process of it for memory"
    if code == 128 + 9:
        return "it was killed (SIGKILL), as the kernel does when memory runs out"
    if _SHARED.search(output):
        return "shared memory (/dev/shm) ran out"
    if _KILLED.search(output):
        return "a worker was killed (SIGKILL), as the kernel does when memory runs out"
    if _GONE.search(output):
        return "a worker was gone without a word: killed, or ended by its own code"
    return None

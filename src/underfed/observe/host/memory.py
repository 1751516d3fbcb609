"""Memory: the machine's, the group's limit and use, what was killed for it, and /dev/shm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.cgroup import Groups
from underfed.observe.host.files import base, integer, table, text


class Memory(NamedTuple):
    """All in bytes but `oom_kills`. `limit` is None without one; `used` and `cache` are of the group that sets it.

    `cache` is file cache that the kernel drops first, `active` what it drops next; without a limit, `used` and the two
    are the own group's.
    """

    total: int | None
    available: int | None
    limit: int | None
    used: int | None
    cache: int | None
    oom_kills: int | None
    active: int | None = None


class Space(NamedTuple):
    """A file system: bytes and inodes, all and those free to this user. Inodes are None where it counts none."""

    total: int
    free: int
    inodes: int | None
    inodes_free: int | None


def memory(found: Groups | None, root: Path = Path("/")) -> Memory:
    """Return the machine's memory and the tightest limit of a process's groups."""
    system = table(f"{base(root)}/proc/meminfo")
    total, available = (system[name] * 1024 if name in system else None for name in ("MemTotal", "MemAvailable"))
    limit, folder, second = None, None, False
    for version2, folders in ((True, found.v2 if found else ()), (False, found.memory if found else ())):
        for each in folders:
            value = integer(text(f"{each}/{'memory.max' if version2 else 'memory.limit_in_bytes'}"))
            # version 1 writes a number near 2**63 for "none"; more than the machine has is no limit either
            if value is not None and value < (total or 1 << 60) and (limit is None or value < limit):
                limit, folder, second = value, each, version2
    if folder is None and found:
        second = bool(found.v2) and text(f"{found.v2[0]}/memory.current") is not None
        folder = found.v2[0] if second else next(iter(found.memory), None)
    if folder is None:
        return Memory(total, available, None, None, None, _kills(found))
    stat = table(f"{folder}/memory.stat")
    return Memory(
        total=total,
        available=available,
        limit=limit,
        used=integer(text(f"{folder}/{'memory.current' if second else 'memory.usage_in_bytes'}")),
        cache=stat.get("inactive_file") if second else stat.get("total_inactive_file", stat.get("inactive_file")),
        oom_kills=_kills(found),
        active=stat.get("active_file") if second else stat.get("total_active_file", stat.get("active_file")),
    )


def _kills(found: Groups | None) -> int | None:
    """Return the processes of the own group killed for memory; a parent's count would hold its other children's."""
    for folders, file in ((found.v2, "memory.events"), (found.memory, "memory.oom_control")) if found else ():
        if folders and (count := table(f"{folders[0]}/{file}").get("oom_kill")) is not None:
            return count
    return None


def space(path: Path | str) -> Space | None:
    """Return the room on the file system of a path; None where it is not there."""
    try:
        found = os.statvfs(path)
    except (OSError, ValueError):
        return None
    counted = found.f_files > 0
    return Space(
        total=found.f_blocks * found.f_frsize,
        free=found.f_bavail * found.f_frsize,
        inodes=found.f_files if counted else None,
        inodes_free=found.f_favail if counted else None,
    )


def shm(root: Path = Path("/")) -> Space | None:
    """Return the room in /dev/shm, through which DataLoader workers hand over their batches."""
    return space(f"{base(root)}/dev/shm")  # noqa: S108  # read, never written to

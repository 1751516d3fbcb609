"""CPUs: how many a process sees, may run on and is paid for, and what the kernel took away from it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from underfed.observe.host.cgroup import Groups, groups
from underfed.observe.host.files import base, field, integer, list_numbers, list_size, real, table, text


class Quota(NamedTuple):
    """A CPU quota: `cpus` is None where the groups set none. `depth` counts upwards from the own group, which is 0."""

    cpus: float | None
    file: str
    depth: int
    folder: str


class Throttle(NamedTuple):
    """How often the quota stopped the group since it was made: periods, those throttled, and the time in us."""

    nr_periods: int
    nr_throttled: int
    throttled_us: int


class Cpus(NamedTuple):
    """How many CPUs there are to use. `usable` is the least of those known, `limited_by` says which one that is.

    `quota` is None where there is none or it cannot be read; `quota_known` tells the two apart.
    """

    visible: int | None
    affinity: int | None
    quota: float | None
    usable: float | None
    limited_by: str | None
    source: str | None
    quota_known: bool


def visible_cpus(root: Path = Path("/")) -> int | None:
    """Return the number of CPUs that are online, as every program on the machine sees it."""
    prefix = base(root)
    online = list_size(text(f"{prefix}/sys/devices/system/cpu/online"))
    if online is not None:
        return online
    lines = (text(f"{prefix}/proc/stat") or "").splitlines()
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines) or None


def affinity_size(root: Path = Path("/"), pid: int | str = "self") -> int | None:
    """Return the number of CPUs that a process's main thread may run on."""
    return list_size(field(text(f"{base(root)}/proc/{pid}/status"), "Cpus_allowed_list"))


def quota(found: Groups | None) -> Quota | None:
    """Return the tightest CPU quota of a process's groups and their parents; None where none can be read."""
    if found is None:
        return None
    readings: list[Quota] = []
    for depth, folder in enumerate(found.v2):
        words = (text(f"{folder}/cpu.max") or "").split()
        limit, period = (integer(words[0]), integer(words[1])) if len(words) == 2 else (None, None)
        if period and period > 0 and ((limit or 0) > 0 or words[0] == "max"):
            readings.append(Quota(limit / period if limit else None, "cpu.max", depth, folder))
    for depth, folder in enumerate(found.cpu):
        limit, period = integer(text(f"{folder}/cpu.cfs_quota_us")), integer(text(f"{folder}/cpu.cfs_period_us"))
        if limit is not None and period and period > 0:
            readings.append(Quota(limit / period if limit > 0 else None, "cpu.cfs_quota_us", depth, folder))
    limits = [reading for reading in readings if reading.cpus is not None]
    return min(limits, key=lambda reading: reading.cpus or 0.0) if limits else (readings[0] if readings else None)


def throttle(found: Groups | None, limit: Quota | None) -> Throttle | None:
    """Return the throttling of the group that sets the quota, of the own group without one; None where not counted."""
    folders = [limit.folder] if limit and limit.cpus is not None else [*(found.v2[:1] + found.cpu[:1] if found else ())]
    for folder in folders:
        stat = table(f"{folder}/cpu.stat")
        if "nr_throttled" in stat and "nr_periods" in stat:
            micro = stat.get("throttled_usec", stat.get("throttled_time", 0) // 1000)
            return Throttle(stat["nr_periods"], stat["nr_throttled"], micro)
    return None


def effective_cpus(root: Path = Path("/"), pid: int | str = "self") -> Cpus:
    """Return how many CPUs a process can really use, and which of the three limits decides."""
    visible, affinity, limit = visible_cpus(root), affinity_size(root, pid), quota(groups(root, pid))
    names = {
        "visible": (visible, "cpus online"),
        "affinity": (affinity, "affinity mask"),
        "quota": (limit.cpus if limit else None, f"{limit.file}, {_level(limit.depth)}" if limit else None),
    }
    known = {name: value for name, (value, _) in names.items() if value is not None}
    # of equal ones the first is the plainest: the quota of a container as large as its machine limits nothing
    decides = min(known, key=lambda name: known[name]) if known else None
    return Cpus(
        visible=visible,
        affinity=affinity,
        quota=limit.cpus if limit else None,
        usable=float(known[decides]) if decides else None,
        limited_by=decides,
        source=names[decides][1] if decides else None,
        quota_known=limit is not None,
    )


def _level(depth: int) -> str:
    return "own group" if depth == 0 else f"{depth} level{'s' if depth > 1 else ''} above the own group"


def load(root: Path = Path("/")) -> float | None:
    """Return the load average of the last minute."""
    words = (text(f"{base(root)}/proc/loadavg") or "").split()
    return real(words[0]) if words else None


def stolen(root: Path = Path("/")) -> tuple[int, int] | None:
    """Return CPU time since boot, all CPUs together, in ticks: stolen by the hypervisor, and all there was."""
    found = ticks(root)
    return (found.stolen, found.all) if found else None


class Ticks(NamedTuple):
    """CPU time since boot, all CPUs together, in ticks: with nothing to run, stolen by the hypervisor, and all."""

    idle: int
    stolen: int
    all: int


def ticks(root: Path = Path("/")) -> Ticks | None:
    """Return the machine's CPU time by what it went to; None where /proc/stat does not tell."""
    words = (text(f"{base(root)}/proc/stat") or "").partition("\n")[0].split()
    read = [integer(word) for word in words[1:9]]
    if not words or words[0] != "cpu" or len(read) < 8:
        return None
    known = [tick for tick in read if tick is not None]
    return Ticks(known[3] + known[4], known[7], sum(known)) if len(known) == 8 else None


def cores(root: Path = Path("/"), pid: int | str = "self") -> int | None:
    """Return the physical cores among a process's CPUs: MKL, and so torch, starts a thread for each."""
    prefix = base(root)
    allowed = list_numbers(field(text(f"{prefix}/proc/{pid}/status"), "Cpus_allowed_list"))
    siblings = {text(f"{prefix}/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in allowed}
    return len(siblings) if siblings and None not in siblings else None

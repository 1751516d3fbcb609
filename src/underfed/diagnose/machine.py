"""What the host's lines say of the machine during the run."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from underfed.playbook.evidence import CpuFacts


def find(line: dict[str, Any], *path: str) -> Any:
    """Follow names into a line that may have any shape; None where the way ends."""
    value: Any = line
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def number(value: Any) -> float | None:
    """Return a number of a line as a float; None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 2**63:
        return None
    return float(value)


def cpu_facts(host: list[dict[str, Any]]) -> CpuFacts | None:
    """CPUs that the run may use, from the line that describes the machine; None without one."""
    box = next((line for line in host if line.get("k") == "box"), None)
    if box is None:
        return None
    visible, usable = number(find(box, "cpu", "visible")), number(find(box, "cpu", "usable"))
    limited = find(box, "cpu", "limited_by")
    return CpuFacts(
        visible=int(visible) if visible is not None else None,
        usable=usable,
        quota=number(find(box, "cpu", "quota")),
        limited_by=limited if isinstance(limited, str) else None,
        throttled_share=_throttled(host),
        affinity=number(find(box, "cpu", "affinity")),
        others=_others(host, visible),
    )


def _others(host: list[dict[str, Any]], visible: float | None) -> float | None:
    """CPUs that processes beside ours kept busy, between the first and the last look at the machine's own counters."""
    looks: list[tuple[int, float, float, float]] = []
    for at, line in enumerate(host):
        every, idle = number(find(line, "cpu", "all_ticks")), number(find(line, "cpu", "idle_ticks"))
        when = number(line.get("t_ns"))
        if every is not None and idle is not None and when is not None:
            looks.append((at, every, idle, when))
    if len(looks) < 2 or not visible:
        return None
    (first, all_first, idle_first, begin), (last, all_last, idle_last, end) = looks[0], looks[-1]
    if all_last <= all_first or end <= begin:
        return None
    busy = visible * (1 - (idle_last - idle_first) / (all_last - all_first))
    # A process that ended meanwhile counts with what it had used when it was last seen.
    before: dict[int, float] = _own_ms(host[first])
    now: dict[int, float] = {}
    for line in host[first : last + 1]:
        now |= _own_ms(line)
    ours = sum(max(0.0, used - before.get(pid, 0.0)) for pid, used in now.items()) / ((end - begin) * 1e-6)
    return max(0.0, busy - ours)


def _own_ms(line: dict[str, Any]) -> dict[int, float]:
    found = {}
    tree = line.get("tree")
    for process in tree if isinstance(tree, list) else ():
        user, system = number(find(process, "utime_ms")), number(find(process, "stime_ms"))
        if user is not None and system is not None and isinstance(process.get("pid"), int):
            found[process["pid"]] = user + system
    return found


def _throttled(host: list[dict[str, Any]]) -> float | None:
    """Share of the wall time in which the cgroup's quota stopped some CPU of ours, at most.

    The kernel adds the time up over CPUs, so it can pass the wall clock; the share of throttled periods bounds it.
    """
    names = ("throttled_us", "nr_throttled", "nr_periods")
    rows = [[number(line.get("t_ns")), *(number(find(line, "cpu", name)) for name in names)] for line in host]
    seen = [known for row in rows if len(known := [value for value in row if value is not None]) == len(row)]
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    wall, stopped, throttled, periods = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    return min(1e3 * stopped / wall, throttled / periods if periods > 0 else 0.0)


def queue_wait(host: list[dict[str, Any]], pids: set[int]) -> float | None:
    """Time for which these processes were ready to run and had no CPU, for each unit of time on one; None if unknown.

    The kernel counts both from a process's start, so a process that was seen once tells of its life until then.
    """
    seen: dict[int, list[tuple[float, float]]] = {}
    for line in host:
        tree = line.get("tree")
        for process in tree if isinstance(tree, list) else ():
            pid, run, wait = (
                find(process, "pid"),
                number(find(process, "run_ns")),
                number(find(process, "wait_ns")),
            )
            if pid in pids and run is not None and wait is not None:
                seen.setdefault(pid, [(0.0, 0.0)]).append((run, wait))
    spans = [(found[-1], found[1] if len(found) > 2 else found[0]) for found in seen.values()]
    ran = sum(last[0] - first[0] for last, first in spans)
    waited = sum(last[1] - first[1] for last, first in spans)
    return waited / ran if ran > 0 and waited >= 0 else None


def gpu_utilization(host: list[dict[str, Any]]) -> float | None:
    """Mean of NVML's utilization of the busiest device, 0 to 1; None without a device."""
    by_device: dict[int, list[float]] = {}
    for line in host:
        gpus = line.get("gpu")
        for at, gpu in enumerate(gpus if isinstance(gpus, list) else ()):
            value = utilization(gpu)
            if value is not None:
                by_device.setdefault(at, []).append(value / 100)
    return max((fmean(values) for values in by_device.values()), default=None)


def utilization(gpu: Any) -> float | None:
    """NVML's utilization in %, also under the name that older recordings have for it."""
    found = number(find(gpu, "utilization"))
    return found if found is not None else number(find(gpu, "sm_util"))

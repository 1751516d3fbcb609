"""What the host's lines say of memory, of the GPU and of the loader's workers during the run."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from underfed.diagnose.machine import find, number, utilization
from underfed.playbook.evidence import GpuFacts, MemoryFacts, WorkerFacts

#: Utilization from which a reading tells of a GPU at work.
_BUSY = 50.0
#: Memory has to grow over at least this many seconds, and in each part of them, to count as growing.
_GROWING_S = 60.0
_PARTS = 5
#: Reasons that hold a clock down and come from the card or its operator, not from the idle state.
_HARMLESS = frozenset({"idle", "display clock setting"})


def memory_facts(host: list[dict[str, Any]], workers: set[int]) -> MemoryFacts | None:
    """Sum up the memory of the run's control group, or of the machine where the group has no limit."""
    rows = []
    for line in host:
        total, limit = number(find(line, "mem", "total")), number(find(line, "mem", "limit"))
        used, cache = number(find(line, "mem", "used")), number(find(line, "mem", "cache"))
        available, at = number(find(line, "mem", "available")), number(line.get("t_ns"))
        active = number(find(line, "mem", "active"))
        # Without the active part of the file cache, a run that reads much would seem to grow.
        if limit is not None and used is not None and active is not None and at is not None:
            rows.append((at * 1e-9, limit, used - (cache or 0.0) - active, True))
        elif limit is None and total is not None and available is not None and at is not None:
            rows.append((at * 1e-9, total, total - available, False))
    if not rows:
        return None
    kills = [kill for line in host if (kill := number(find(line, "mem", "oom_kills"))) is not None]
    resident = [rss for pid, rss in _of(host, "rss") if pid in workers]
    _, limit, _, of_group = rows[-1]
    growth, span = _growth([(at, used) for at, _, used, group in rows if group == of_group])
    return MemoryFacts(
        limit=limit,
        used=max(used for _, _, used, _ in rows),
        of_group=of_group,
        growth=growth,
        span_s=span,
        kills=int(kills[-1] - kills[0]) if len(kills) > 1 else 0,
        worker=max(resident, default=None),
    )


def _growth(rows: list[tuple[float, float]]) -> tuple[float | None, float]:
    """Growth in bytes a minute over the later two thirds, and their seconds; None where a part of them has none.

    A single jump, or growth that has come to an end, is no growth that goes on.
    """
    late = rows[len(rows) // 3 :]
    if len(late) < 2 * _PARTS or late[-1][0] - late[0][0] < _GROWING_S:
        return None, 0.0
    span = late[-1][0] - late[0][0]
    size = len(late) // _PARTS
    parts = [late[at * size : (at + 1) * size] for at in range(_PARTS)]
    means = [(fmean(at for at, _ in part), fmean(used for _, used in part)) for part in parts]
    total = means[-1][1] - means[0][1]
    if total <= 0 or any(two[1] - one[1] < 0.4 * total / (_PARTS - 1) for one, two in pairwise(means)):
        return None, span
    return total / (means[-1][0] - means[0][0]) * 60, span


def _of(host: list[dict[str, Any]], name: str) -> Iterator[tuple[int, float]]:
    for line in host:
        tree = line.get("tree")
        for process in tree if isinstance(tree, list) else ():
            pid, value = find(process, "pid"), number(find(process, name))
            if isinstance(pid, int) and value is not None:
                yield pid, value


def worker_facts(host: list[dict[str, Any]], workers: set[int], loop: int) -> WorkerFacts | None:
    """What the workers' processes may use; None where none was seen."""
    affinity = [value for pid, value in _of(host, "affinity") if pid in workers]
    threads = [value for pid, value in _of(host, "threads") if pid in workers]
    own = [value for pid, value in _of(host, "affinity") if pid == loop]
    if not threads:
        return None
    return WorkerFacts(
        seen=len({pid for pid, _ in _of(host, "threads") if pid in workers}),
        affinity=median(affinity) if affinity else None,
        threads=median(threads),
        loop_affinity=median(own) if own else None,
    )


def gpu_facts(host: list[dict[str, Any]]) -> GpuFacts | None:
    """Sum up the GPU that was busiest; None where NVML shows none."""
    boxes = [box for line in host if isinstance(box := find(line, "gpu", "devices"), list)]
    named = [[device for device in box if isinstance(device, dict)] for box in boxes]
    devices: list[dict[str, Any]] = next(filter(None, reversed(named)), [])
    if not devices:
        return None
    readings: dict[int, list[dict[str, Any]]] = {}
    for line in host:
        gpus = line.get("gpu")
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, dict) and isinstance(gpu.get("device"), int):
                readings.setdefault(gpu["device"], []).append(gpu)

    def load(each: int) -> float:
        return sum(utilization(one) or 0.0 for one in readings[each])

    at = max(readings, key=load, default=0)
    fixed = next((device for device in devices if device.get("device") == at), devices[0])
    busy = [one for one in readings.get(at, []) if (utilization(one) or 0.0) >= _BUSY]
    held: dict[str, float] = {}
    for one in busy:
        words = one.get("reasons")
        for word in words if isinstance(words, list) else ():
            if isinstance(word, str) and word not in _HARMLESS:
                held[word] = held.get(word, 0.0) + 1 / len(busy)
    return GpuFacts(
        devices=len(devices),
        readings=len(busy),
        sm_mhz=_mean(busy, "sm_mhz"),
        max_sm_mhz=number(fixed.get("max_sm_mhz")),
        held=held,
        power_w=_mean(busy, "power_w"),
        limit_w=number(fixed.get("limit_w")),
        default_limit_w=number(fixed.get("default_limit_w")),
        temp_c=_mean(busy, "temp_c"),
        pcie=_link(busy, "pcie_gen", "pcie_width"),
        pcie_max=_link([fixed], "pcie_gen_max", "pcie_width_max"),
    )


def _mean(readings: list[dict[str, Any]], name: str) -> float | None:
    values = [value for one in readings if (value := number(one.get(name))) is not None]
    return fmean(values) if values else None


def _link(readings: list[dict[str, Any]], gen: str, width: str) -> tuple[int, int] | None:
    pairs = [(number(one.get(gen)), number(one.get(width))) for one in readings]
    known = [(int(a), int(b)) for a, b in pairs if a and b]
    return max(known, key=lambda pair: 2 ** pair[0] * pair[1], default=None)

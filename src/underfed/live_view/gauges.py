"""Counters of the host and its GPUs, from a recording's lines or from a live look, as gauges of the view."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from underfed.live_view.state import Gauge
from underfed.observe.gpu.decode import slowing

_MOST_GPUS = 4


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Counters at one time (s on any clock): CPU time of each process by (pid, start) in s, periods of the quota."""

    at: float
    cpu_s: Mapping[tuple[int, int], float] = field(default_factory=dict)
    usable: float | None = None
    periods: int | None = None
    throttled: int | None = None
    devices: tuple[Mapping[str, Any], ...] = ()
    fixed: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def gauges(before: Sample | None, now: Sample) -> tuple[Gauge, ...]:
    """Return the gauges between two samples; without an earlier one only those that need none."""
    found = [] if before is None or now.at <= before.at else [*_host(before, now)]
    return (*found, *_gpus(now))


def number(value: Any) -> float | None:
    """Return a JSON number as a finite float, None for anything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 2**63 else None


def _host(before: Sample, now: Sample) -> list[Gauge]:
    passed = now.at - before.at
    # a process that was not there before is left out; where all are new, nothing is known
    spent = [max(0.0, cpu - before.cpu_s[who]) for who, cpu in now.cpu_s.items() if who in before.cpu_s]
    used, usable = sum(spent) / passed, now.usable
    of = f" of {usable:g}" if usable else ""
    found = [Gauge("CPU", used, f"{used:.1f}{of} used", usable)] if spent else []
    if None not in (before.periods, now.periods, before.throttled, now.throttled):
        periods = (now.periods or 0) - (before.periods or 0)
        stopped = (now.throttled or 0) - (before.throttled or 0)
        if periods > 0 and 0 <= stopped <= periods:
            found.append(Gauge("quota", stopped / periods, f"throttled in {100 * stopped / periods:.0f} % of periods"))
    return found


def _gpus(now: Sample) -> list[Gauge]:
    found: list[Gauge] = []
    for device in now.devices[:_MOST_GPUS]:
        at, utilization = number(device.get("device")), number(device.get("utilization"))
        fixed = now.fixed.get(int(at), {}) if at is not None else {}
        name = f"GPU {int(at)}" if at is not None else "GPU"
        gpm = device.get("gpm")
        active = number(gpm.get("sm")) if isinstance(gpm, Mapping) else None
        figures = (("util", utilization), ("SM", active))
        words = ", ".join(f"{word} {value:.0f} %" for word, value in figures if value is not None)
        busy = utilization if active is None else active
        found.append(Gauge(name, busy / 100 if busy is not None else None, words or "no reading"))
        clock, most = number(device.get("sm_mhz")), number(fixed.get("max_sm_mhz"))
        if clock is not None:
            mask = number(device.get("throttle"))
            held = ", ".join(slowing(int(mask) if mask is not None else None))
            held = f" {held[:40]}" if held else ""
            found.append(Gauge(" clock", clock, f"{clock:.0f}{f'/{most:.0f}' if most else ''} MHz{held}", most))
        power, limit = number(device.get("power_w")), number(fixed.get("limit_w"))
        if power is not None:
            found.append(Gauge(" power", power, f"{power:.0f}{f'/{limit:.0f}' if limit else ''} W", limit))
    return found


def of_line(line: Mapping[str, Any], box: Mapping[str, Any] | None) -> Sample | None:
    """Return the sample in one line of `host.jsonl` after its box line; None where it is none."""
    at = number(line.get("t_ns"))
    if line.get("k") != "host" or at is None:
        return None
    cpu = line.get("cpu") if isinstance(line.get("cpu"), dict) else {}
    told = box.get("cpu") if box is not None and isinstance(box.get("cpu"), dict) else {}
    counts = [number(cpu.get(name)) if cpu else None for name in ("nr_periods", "nr_throttled")]
    quota = number(cpu.get("quota")) if cpu else None
    tree, gpu = line.get("tree"), line.get("gpu")
    card = box.get("gpu") if box is not None else None
    return Sample(
        at=at / 1e9,
        cpu_s=_tree(tree if isinstance(tree, list) else []),
        usable=number(told.get("usable")) if told else None,
        periods=int(counts[0]) if counts[0] is not None and quota is not None else None,
        throttled=int(counts[1]) if counts[1] is not None and quota is not None else None,
        devices=tuple(each for each in (gpu if isinstance(gpu, list) else []) if isinstance(each, dict)),
        fixed=fixed_of(card if isinstance(card, dict) else None),
    )


def fixed_of(box: Mapping[str, Any] | None) -> dict[int, Mapping[str, Any]]:
    """Return the facts of each device by its number, from what NVML told once."""
    devices = box.get("devices") if box is not None else None
    found = [each for each in (devices if isinstance(devices, list) else []) if isinstance(each, dict)]
    return {int(at): each for each in found if (at := number(each.get("device"))) is not None}


def _tree(tree: list[Any]) -> dict[tuple[int, int], float]:
    found = {}
    for process in tree:
        if isinstance(process, dict):
            values = [number(process.get(name)) for name in ("pid", "start_ms", "utime_ms", "stime_ms")]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                found[int(known[0]), int(known[1])] = (known[2] + known[3]) / 1000
    return found

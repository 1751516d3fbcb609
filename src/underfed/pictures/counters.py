"""Counters of the device and the host beside the run: what was sampled, and plainly what was not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from underfed.pictures.material import Material
from underfed.pictures.shapes import Cell, number

Line = dict[str, Any]

#: Points of a sparkline.
_POINTS = 90
_WIDTH, _HEIGHT = 180.0, 30.0
_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class Counter:
    """One counter: its figures as text and its curve as an SVG path; without samples all of them are None."""

    label: str
    unit: str
    low: Cell = None
    mean: Cell = None
    high: Cell = None
    path: str | None = None


_GPU: tuple[tuple[str, str, tuple[tuple[str, ...], ...], float], ...] = (
    ("time with any kernel (NVML utilization)", "%", (("utilization",), ("sm_util",)), 1.0),
    ("streaming multiprocessors at work", "%", (("gpm", "sm"),), 1.0),
    ("tensor cores at work", "%", (("gpm", "tensor"),), 1.0),
    ("memory bandwidth in use", "%", (("gpm", "dram"),), 1.0),
    ("memory in use", "GiB", (("mem_used",),), _GIB),
    ("clock", "MHz", (("sm_mhz",),), 1.0),
    ("power", "W", (("power_w",),), 1.0),
    ("received over PCIe", "MiB/s", (("gpm", "pcie_rx"),), 1.0),
)


def _find(line: Any, *path: str) -> float | None:
    for name in path:
        line = line.get(name) if isinstance(line, dict) else None
    return float(line) if isinstance(line, int | float) and not isinstance(line, bool) else None


def counters(material: Material) -> tuple[list[tuple[str, list[Counter]]], str | None]:
    """Return groups of counters, or why there are none."""
    if material.recording is None:
        return [], "Only a recording of underfed run holds counters; a trace or a saved diagnosis has none."
    lines = [line for line in material.recording.host if line.get("k") == "host" and _find(line, "t_ns") is not None]
    if len(lines) < 2:
        return [], "The machine was not sampled, or the run was over within a second or two."
    groups = [(f"device {at}", _device(lines, at)) for at in _devices(lines)]
    return [*groups, ("host", _host(lines))], None


def _devices(lines: list[Line]) -> list[int]:
    most = max((len(line["gpu"]) for line in lines if isinstance(line.get("gpu"), list)), default=0)
    return list(range(min(most, 16)))


def _device(lines: list[Line], at: int) -> list[Counter]:
    found = []
    for label, unit, paths, scale in _GPU:
        points = []
        for line in lines:
            many = line.get("gpu")
            one = many[at] if isinstance(many, list) and at < len(many) else None
            value = next((value for path in paths if (value := _find(one, *path)) is not None), None)
            if value is not None:
                points.append((_time(line), value / scale))
        found.append(_counter(label, unit, points))
    return found


def _host(lines: list[Line]) -> list[Counter]:
    group = (
        ("psi", "group") if any(_find(line, "psi", "group", "cpu", "some_us") is not None for line in lines) else None
    )
    pressure = group or ("psi", "system")
    plain: tuple[tuple[str, str, Callable[[Line], float | None]], ...] = (
        ("memory in use", "GiB", lambda line: _scaled(_find(line, "mem", "used"), _GIB)),
        ("free in /dev/shm", "GiB", lambda line: _scaled(_find(line, "mem", "shm_free"), _GIB)),
    )
    rates: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("time throttled by the CPU quota", "%", ("cpu", "throttled_us")),
        ("time in which some task waited for a CPU", "%", (*pressure, "cpu", "some_us")),
        ("time in which some task waited for storage", "%", (*pressure, "io", "some_us")),
    )
    found = [_counter("CPUs in use by the run", "", _cpus(lines))]
    for label, unit, path in rates:
        found.append(_counter(label, unit, _rates([(_time(line), _find(line, *path)) for line in lines])))
    for label, unit, take in plain:
        points = [(_time(line), value) for line in lines if (value := take(line)) is not None]
        found.append(_counter(label, unit, points))
    return found


def _time(line: Line) -> float:
    return (_find(line, "t_ns") or 0.0) * 1e-9


def _scaled(value: float | None, by: float) -> float | None:
    return None if value is None else value / by


def _rates(seen: list[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """From counters in us to % of the time between samples."""
    known = [(at, value) for at, value in seen if value is not None]
    return [
        (now, 1e-4 * max(0.0, high - low) / (now - then)) for (then, low), (now, high) in pairwise(known) if now > then
    ]


def _cpus(lines: list[Line]) -> list[tuple[float, float]]:
    """CPUs that the run's processes used between two samples, of those that are in both."""
    found: list[tuple[float, float]] = []
    before: dict[int, float] = {}
    then = 0.0
    for line in lines:
        tree = line.get("tree")
        if not isinstance(tree, list):
            continue
        now = _time(line)
        used = {}
        for process in tree:
            pid, user, system = _find(process, "pid"), _find(process, "utime_ms"), _find(process, "stime_ms")
            if pid is not None and user is not None and system is not None:
                used[int(pid)] = user + system
        if before and now > then:
            spent = sum(max(0.0, ms - before[pid]) for pid, ms in used.items() if pid in before)
            found.append((now, 1e-3 * spent / (now - then)))
        before, then = used, now
    return found


def _counter(label: str, unit: str, points: list[tuple[float, float]]) -> Counter:
    if not points:
        return Counter(label=label, unit=unit)
    values = [value for _, value in points]
    return Counter(
        label=label,
        unit=unit,
        low=number(min(values)),
        mean=number(fmean(values)),
        high=number(max(values)),
        path=_path(points, 100.0 if unit == "%" else max(values)) if len(points) > 1 else None,
    )


def _path(points: list[tuple[float, float]], top: float) -> str:
    """Return the curve as SVG, means of neighbours, from 0 to the top of the scale."""
    size = -(-len(points) // _POINTS)
    buckets = [points[at : at + size] for at in range(0, len(points), size)]
    first, last = points[0][0], points[-1][0]
    width, top = max(last - first, 1e-9), max(top, 1e-9)
    curve = []
    for bucket in buckets:
        x = _WIDTH * (fmean(at for at, _ in bucket) - first) / width
        y = _HEIGHT - (_HEIGHT - 2) * min(1.0, fmean(value for _, value in bucket) / top) - 1
        curve.append(f"{x:.1f},{y:.1f}")
    return "M" + " L".join(curve)

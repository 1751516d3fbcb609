"""Evidence for tests: a plain run with parts to replace, and evidence from a simulated loader."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median
from typing import Any

from loader_sim import Seen, Setup

from underfed.diagnose.budget import DeviceTime, cpu_budget, gpu_budget, host_time
from underfed.diagnose.split import split
from underfed.playbook.evidence import CpuFacts, EpochFacts, Evidence, FetchFacts, LoaderFacts

LOADER = LoaderFacts(
    workers=0,
    batch=32,
    pin=True,
    persistent=False,
    prefetch=2,
    context="fork",
    length=1000,
    dataset="Images",
    iterable=False,
    item_at="data.py:10",
    collate_at="data.py:30",
    made_at="train.py:20",
)
FETCHES = FetchFacts(
    count=200,
    wall=80.0,
    cpu=78.0,
    process_cpu=78.0,
    collate=2.0,
    samples=32.0,
    wall_median=80.0,
    wall_p95=85.0,
    bytes_read=1e6,
    by_worker={},
    span_ms=20000.0,
)
CPUS = CpuFacts(visible=8, usable=8.0, quota=None, limited_by="visible", throttled_share=0.0)


def evidence(
    regions: dict[str, float],
    *,
    sections: dict[str, dict[str, float]] | None = None,
    device: DeviceTime | None = None,
    on_gpu: bool = True,
    steps: int = 200,
    **more: Any,
) -> Evidence:
    """Make evidence whose budget and bound follow from its regions and device time, as a recording's would."""
    host = host_time(regions, sections or {})
    step = gpu_budget(host, device) if on_gpu else cpu_budget(host)
    bound = split(step, steps=steps, on_gpu=on_gpu).bound
    made = Evidence(kind="run", on_gpu=on_gpu, steps=steps, step=step, bound=bound, regions=regions, cpus=CPUS)
    return replace(made, **{"counts": {"fetches": 1.0}, **more})


def busy(ms: float, *, copy: float = 0.0, sync_share: float = 0.0) -> DeviceTime:
    """Device time of a step with nothing exposed."""
    return DeviceTime(busy=ms, compute=ms - copy, copy=copy, comms=0.0, exposed_comms=0.0, sync_share=sync_share)


def fed_by(setup: Setup, seen: Seen, *, device_share: float = 0.9) -> Evidence:
    """Evidence as the agent and `gather` would make it of a simulated run. The device works for a share of the loop."""
    steps = len(seen.walls)
    walls = sorted(wall for wall, _, _ in seen.fetches)
    by_worker: dict[int, int] = {}
    for _, _, worker in seen.fetches:
        if worker >= 0:
            by_worker[worker] = by_worker.get(worker, 0) + 1
    cpu = fmean(cpu for _, cpu, _ in seen.fetches)
    borders = [at for at, border in enumerate(seen.borders) if border]
    inner = [wait for wait, border in zip(seen.waits, seen.borders, strict=True) if not border]
    usual = median(inner) if inner else 0.0
    epochs = EpochFacts(
        count=len(borders),
        steps=steps / len(borders),
        start_ms=fmean(seen.starts[at] for at in borders),
        first_wait_ms=fmean(max(0.0, seen.waits[at] - usual) for at in borders),
    )
    data, start = fmean(seen.waits), fmean(seen.starts)
    rest = fmean(seen.walls) - data - start
    on_gpu = not setup.loop_computes
    return evidence(
        {"data": data, "start": start, "pre": 0.4 * rest, "backward": 0.5 * rest, "optimizer": 0.1 * rest},
        device=busy(device_share * setup.loop) if on_gpu else None,
        on_gpu=on_gpu,
        steps=steps,
        loader=replace(LOADER, workers=setup.workers, persistent=setup.persistent, prefetch=setup.prefetch),
        fetches=FetchFacts(
            count=len(walls),
            wall=fmean(walls),
            cpu=cpu,
            process_cpu=cpu,
            collate=0.0,
            samples=32.0,
            wall_median=median(walls),
            wall_p95=walls[min(len(walls) - 1, int(0.95 * len(walls)))],
            bytes_read=None,
            by_worker=by_worker,
            span_ms=seen.span,
        ),
        epochs=epochs if len(borders) > 1 else None,
        cpus=replace(CPUS, usable=setup.cpus, visible=max(1, round(setup.cpus))),
    )

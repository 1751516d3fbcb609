"""Ranks that train together, simulated moment by moment, and the traces that a profiler would write of them.

The simulation is the truth that the tests compare with; it shares no code with underfed.
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

SHARED = Path(__file__).resolve().parents[3] / "shared"


@dataclass
class World:
    """Ranks and what each does in a step, in ns: `parts` pieces of computing, an all-reduce behind each.

    `slow` adds to every piece of a rank; `jitter` is the most that chance adds to a piece of one rank a step.
    """

    ranks: int
    steps: int = 12
    parts: int = 2
    compute: int = 4_000_000
    transfer: int = 300_000
    slow: dict[int, int] = field(default_factory=dict)
    jitter: int = 0
    jitter_every: int = 0
    clock: int = 0
    seed: int = 0
    slow_host: bool = False
    first_late: int = 0


@dataclass
class Run:
    """What happened: kernels of each rank in its own clock, and who waited how long, by collective."""

    kernels: list[list[tuple[str, int, int, int]]]
    marks: list[list[tuple[int, int, int]]]
    waits: list[list[int]]
    last: list[int]
    step_ns: float


def simulate(world: World) -> Run:
    rng = random.Random(world.seed)
    offsets = [rng.randrange(-world.clock, world.clock + 1) if world.clock else 0 for _ in range(world.ranks)]
    now = [1_000_000 + (world.first_late if rank == world.ranks - 1 else 0) for rank in range(world.ranks)]
    kernels = [[] for _ in range(world.ranks)]
    marks = [[] for _ in range(world.ranks)]
    waits, last = [], []
    begun = max(now)
    for step in range(world.steps):
        begins = list(now)
        unlucky = rng.randrange(world.ranks)
        for part in range(world.parts):
            arrival = []
            for rank in range(world.ranks):
                extra = world.slow.get(rank, 0)
                if world.jitter and rank == unlucky:
                    extra += world.jitter
                # A slow host leaves the device idle before the kernel; a slow card makes the kernel longer.
                start = now[rank] + (extra if world.slow_host else 0) + 10_000
                length = world.compute + (0 if world.slow_host else extra) + rng.randrange(1000)
                kernels[rank].append(("gemm", start, start + length, step))
                arrival.append(start + length + 5_000)
            end = max(arrival) + world.transfer
            latest = max(arrival)
            for rank in range(world.ranks):
                kernels[rank].append((f"comm {step * world.parts + part}", arrival[rank], end, step))
                now[rank] = end
            waits.append([latest - one for one in arrival])
            last.append(arrival.index(latest))
        for rank in range(world.ranks):
            marks[rank].append((step, begins[rank], now[rank]))
    for rank, offset in enumerate(offsets):
        kernels[rank] = [(name, a + offset, b + offset, step) for name, a, b, step in kernels[rank]]
        marks[rank] = [(step, a + offset, b + offset) for step, a, b in marks[rank]]
    return Run(kernels, marks, waits, last, (max(now) - begun) / world.steps)


def us(ns: int) -> float:
    return ns / 1000


def events_of(run: Run, rank: int, noted: bool, ranks: int) -> list[dict]:
    events = []
    for step, begin, end in run.marks[rank]:
        row = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
        events.append({**row, "ts": us(begin), "dur": us(end - begin)})
    for number, (name, start, end, step) in enumerate(run.kernels[rank]):
        begin = run.marks[rank][step][1]
        # Launches run ahead of the device, but no further than the step's begin.
        launch = max(begin, start - 8_000)
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        events.append({**call, "ts": us(launch), "dur": 5.0, "args": {"correlation": number}})
        args = {"device": 0, "stream": 7, "correlation": number}
        kernel = {"ph": "X", "cat": "kernel", "name": "sm90_gemm_tensorop", "pid": 0, "tid": 7}
        if name.startswith("comm"):
            kernel["name"] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
            kernel["tid"] = args["stream"] = 20
            if noted:
                args |= {
                    "Collective name": "allreduce",
                    "In msg nelems": 1_000_000,
                    "Out msg nelems": 1_000_000,
                    "Group size": ranks,
                    "dtype": "Float",
                    "Process Group Name": "0",
                    "Process Group Ranks": "[0, ..., " + str(ranks - 1) + "]",
                    "Seq": int(name.split()[1]),
                }
        events.append({**kernel, "ts": us(start), "dur": us(end - start), "args": args})
    return events


def write(folder, world: World, run: Run, *, noted: bool = True, base: int = 1_700_000_000_000_000_000) -> list:
    paths = []
    for rank in range(world.ranks):
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world.ranks},
            "deviceProperties": [
                {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "warpSize": 32}
            ],
            "baseTimeNanoseconds": base,
            "traceEvents": events_of(run, rank, noted, world.ranks),
        }
        paths.append(folder / f"rank{rank}.pt.trace.json.gz")
        paths[-1].write_bytes(gzip.compress(json.dumps(document).encode(), 1))
    return paths

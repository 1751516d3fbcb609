"""An independent oracle of a GPU loop, kernel by kernel: the host launches, the device works, syncs and stalls wait.

Every step launches `kernels` kernels; each costs the host `launch` and the device `work` ms. `syncs` times a step,
evenly spread, the host waits until the device is done. Every `every` steps a stall waits for the device and then takes
`stall` ms. The host runs ahead of the device by `ahead` kernels at most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    kernels: int
    launch: float
    work: float
    syncs: int = 0
    every: int = 0
    stall: float = 0.0
    ahead: int = 1000
    steps: int = 60


@dataclass(frozen=True)
class LoopSeen:
    """Means over all steps, in ms: the step, launching (with waits for a full queue), syncs, stalls, the device."""

    step: float
    launching: float
    synced: float
    stalled: float
    device: float


def run_loop(loop: Loop) -> LoopSeen:
    """Run the loop and return what was seen."""
    host = device = synced = stalled = 0.0
    finished: deque[float] = deque()
    points = {round((at + 1) * loop.kernels / loop.syncs) for at in range(loop.syncs)} if loop.syncs else set()
    for step in range(1, loop.steps + 1):
        for kernel in range(1, loop.kernels + 1):
            if len(finished) >= loop.ahead:
                host = max(host, finished.popleft())
            host += loop.launch
            device = max(device, host) + loop.work
            finished.append(device)
            if kernel in points:
                synced += max(0.0, device - host)
                host = max(host, device)
        if loop.every and step % loop.every == 0:
            stalled += max(0.0, device - host) + loop.stall
            host = max(host, device) + loop.stall
    total = max(host, device)
    steps = loop.steps
    return LoopSeen(
        step=total / steps,
        launching=(total - synced - stalled) / steps,
        synced=synced / steps,
        stalled=stalled / steps,
        device=loop.kernels * loop.work,
    )

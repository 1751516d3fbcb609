"""What NVML said of the run's devices over the window: how busy they were, by which counter, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from underfed.diagnose.live_limits import LIMITS as L
from underfed.diagnose.live_sum import Sums
from underfed.observe.gpu.decode import slowing


@dataclass(frozen=True)
class Device:
    """Means over the window. `utilization` is the % of time with any kernel, the GPM figures what was really used."""

    id: int
    name: str | None
    utilization: float | None
    sm: float | None
    tensor: float | None
    dram: float | None
    power: float | None
    limit: float | None
    clock: float | None
    max_clock: float | None
    memory: float | None
    throttled: tuple[str, ...]


@dataclass(frozen=True)
class Gpu:
    """The devices that the run holds. `used` is False where it surely holds none, `unsure` where that is not known."""

    used: bool
    unsure: bool
    devices: tuple[Device, ...] = ()
    reason: str | None = None

    @property
    def main(self) -> Device | None:
        """The busiest device."""
        return max(self.devices, key=lambda device: device.sm or device.utilization or 0.0, default=None)

    @property
    def busy(self) -> float | None:
        """How busy the busiest device was, 0 to 1: SM activity where the card has it, else utilization."""
        main = self.main
        value = None if main is None else main.sm if main.sm is not None else main.utilization
        return value / 100 if value is not None else None

    @property
    def full(self) -> bool:
        """Whether the device computes for most of the time."""
        main = self.main
        if main is None:
            return False
        if main.sm is not None:
            return main.sm >= L.gpu_full
        power = main.power / main.limit if main.power is not None and main.limit else None
        return (main.utilization or 0) >= L.gpu_utilized and power is not None and power >= L.gpu_power

    @property
    def idle(self) -> bool:
        """Whether the device mostly waits; without GPM utilization alone can show that."""
        main = self.main
        value = None if main is None else main.sm if main.sm is not None else main.utilization
        return value is not None and value < L.gpu_idle

    @property
    def spins(self) -> bool:
        """Whether a kernel runs all the time and touches no memory, as one does that waits for other devices."""
        main = self.main
        if main is None or main.dram is None or main.utilization is None:
            return False
        return main.utilization >= L.gpu_utilized and main.dram < L.gpu_dead

    @property
    def sure(self) -> bool:
        """Whether the figure is the card's own activity and not utilization."""
        return self.main is not None and self.main.sm is not None

    @property
    def words(self) -> str:
        """The figures in words; utilization and activity together, since the first one misleads."""
        main = self.main
        if main is None:
            return "no reading"
        parts = []
        if main.utilization is not None:
            parts.append(f"utilization {main.utilization:.0f} %")
        named = (("SM activity", main.sm), ("tensor cores", main.tensor), ("DRAM", main.dram))
        parts += [f"{word} {value:.0f} %" for word, value in named if value is not None]
        if main.power is not None and main.limit:
            parts.append(f"{main.power:.0f} of {main.limit:.0f} W")
        return ", ".join(parts)


def _mean(rows: list[dict[str, Any]], *path: str) -> float | None:
    values = []
    for row in rows:
        value: Any = row
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            values.append(float(value))
    return fmean(values) if values else None


def gpu_of(found: Sums) -> Gpu:
    """Sum up the readings of the devices that the ranks hold."""
    seen = found.seen
    box = seen.gpu_box
    if box is None:
        return Gpu(False, True, reason="the NVIDIA driver did not answer")
    if box.get("reason") or not box.get("devices"):
        return Gpu(False, False, reason=box.get("reason"))
    held: set[int] = set()
    for rank in found.ranks:
        held |= rank.member.life.devices
    blind = any(rank.member.life.variables is None for rank in found.ranks)
    if not held:
        return Gpu(False, blind, reason="which device this run holds cannot be seen" if blind else "it holds no GPU")
    # CUDA opens every visible device; one that no process of the run computes on stays idle and is not shown
    rows = {
        number: [row for reading in seen.gpu for row in reading if row.get("device") == number]
        for number in sorted(held)
    }
    fixed = {device["device"]: device for device in box["devices"]}
    devices = tuple(device_of(number, fixed[number], rows[number]) for number in rows if number in fixed)
    return Gpu(True, False, devices)


def device_of(number: int, fixed: dict[str, Any], rows: list[dict[str, Any]]) -> Device:
    """Return the means of one device's readings; `fixed` is what NVML says of it that does not change."""
    masks = [row.get("throttle") for row in rows if isinstance(row.get("throttle"), int)]
    words = sorted({word for mask in masks for word in slowing(mask)})
    return Device(
        id=number,
        name=fixed.get("name"),
        utilization=_mean(rows, "utilization"),
        sm=_mean(rows, "gpm", "sm"),
        tensor=_mean(rows, "gpm", "tensor"),
        dram=_mean(rows, "gpm", "dram"),
        power=_mean(rows, "power_w"),
        limit=fixed.get("limit_w"),
        clock=_mean(rows, "sm_mhz"),
        max_clock=fixed.get("max_sm_mhz"),
        memory=_mean(rows, "mem_used"),
        throttled=tuple(words),
    )

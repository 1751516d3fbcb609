"""A thin adapter to NVML (nvidia-ml-py): every query on its own, so that one that fails loses no other.

Queries name the library's own function and the value taken from its answer. None means that the device, the driver or
the permission does not give it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Fixed(NamedTuple):
    """What does not change while a job runs. Clocks in MHz, power in W, memory in bytes."""

    device: int
    name: str | None
    memory: int | None
    max_sm_mhz: int | None
    limit_w: float | None
    default_limit_w: float | None
    pcie_gen_max: int | None
    pcie_width_max: int | None
    mig: bool | None
    persistence: bool | None
    gpm_supported: bool | None


class Reading(NamedTuple):
    """One look at a device: `utilization` is the % of time with a kernel, `mem_utilization` with a memory access."""

    device: int
    utilization: int | None
    mem_utilization: int | None
    sm_mhz: int | None
    mem_mhz: int | None
    power_w: float | None
    temp_c: int | None
    throttle: int | None
    mem_used: int | None
    pcie_gen: int | None
    pcie_width: int | None


class Nvml:
    """An open NVML. Use `open_nvml`."""

    def __init__(self, library: Any) -> None:
        self._lib = library
        self.handles: list[Any | None] = []
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            self.handles.append(self._ask("nvmlDeviceGetHandleByIndex", index))

    def _ask(self, name: str, *words: Any, take: Callable[[Any], Any] = lambda value: value) -> Any:
        # older bindings lack newer functions, drivers refuse some by card, and a lost card answers each in its own way
        try:
            return take(getattr(self._lib, name)(*words))
        except Exception:
            return None

    def _text(self, name: str, *words: Any) -> str | None:
        value = self._ask(name, *words)
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return value if isinstance(value, str) else None

    @property
    def library(self) -> Any:
        """The binding itself, for queries that are not here."""
        return self._lib

    def driver(self) -> str | None:
        """Return the driver's version."""
        return self._text("nvmlSystemGetDriverVersion")

    def cuda(self) -> int | None:
        """Return the newest CUDA version that the driver runs, as NVML's number (12080 is 12.8)."""
        number: int | None = self._ask("nvmlSystemGetCudaDriverVersion_v2") or self._ask(
            "nvmlSystemGetCudaDriverVersion"
        )
        return number

    def fixed(self, index: int) -> Fixed:
        """Return what does not change of a device."""
        handle, ask, watts = self.handles[index], self._ask, lambda milli: milli / 1000
        return Fixed(
            device=index,
            name=self._text("nvmlDeviceGetName", handle),
            memory=ask("nvmlDeviceGetMemoryInfo", handle, take=lambda info: int(info.total)),
            max_sm_mhz=ask("nvmlDeviceGetMaxClockInfo", handle, 1),
            limit_w=ask("nvmlDeviceGetEnforcedPowerLimit", handle, take=watts),
            default_limit_w=ask("nvmlDeviceGetPowerManagementDefaultLimit", handle, take=watts),
            pcie_gen_max=ask("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width_max=ask("nvmlDeviceGetMaxPcieLinkWidth", handle),
            mig=ask("nvmlDeviceGetMigMode", handle, take=lambda modes: modes[0] == 1),
            persistence=ask("nvmlDeviceGetPersistenceMode", handle, take=lambda mode: mode == 1),
            gpm_supported=ask("nvmlGpmQueryDeviceSupport", handle, take=lambda answer: answer.isSupportedDevice == 1),
        )

    def reading(self, index: int) -> Reading:
        """Return what a device does now."""
        handle, ask = self.handles[index], self._ask
        util, mem = ask("nvmlDeviceGetUtilizationRates", handle, take=lambda rates: (rates.gpu, rates.memory)) or (
            None,
            None,
        )
        return Reading(
            device=index,
            utilization=util,
            mem_utilization=mem,
            sm_mhz=ask("nvmlDeviceGetClockInfo", handle, 1),
            mem_mhz=ask("nvmlDeviceGetClockInfo", handle, 2),
            power_w=ask("nvmlDeviceGetPowerUsage", handle, take=lambda milli: milli / 1000),
            temp_c=ask("nvmlDeviceGetTemperature", handle, 0),
            throttle=ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
            mem_used=ask("nvmlDeviceGetMemoryInfo", handle, take=lambda info: int(info.used)),
            pcie_gen=ask("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth", handle),
        )

    def processes(self, index: int) -> list[int] | None:
        """Return the pids that compute on a device, in NVML's own numbering; None where it does not tell."""
        found: list[int] | None = self._ask(
            "nvmlDeviceGetComputeRunningProcesses",
            self.handles[index],
            take=lambda many: [int(one.pid) for one in many],
        )
        return found

    def pcie_kb(self, index: int) -> tuple[int | None, int | None]:
        """Return KB/s from and to a device; the driver counts for 20 ms each, so this waits about 40 ms."""
        handle = self.handles[index]
        return self._ask("nvmlDeviceGetPcieThroughput", handle, 0), self._ask("nvmlDeviceGetPcieThroughput", handle, 1)

    def close(self) -> None:
        """Let go of the library."""
        self._ask("nvmlShutdown")


def open_nvml() -> Nvml | str:
    """Open NVML; returns the reason as text where there is no library, no driver or no device."""
    try:
        import pynvml
    except Exception as error:
        return f"nvidia-ml-py cannot be imported ({type(error).__name__})"
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return f"no NVIDIA driver that answers ({error})"
    found = Nvml(pynvml)
    if not found.handles:
        found.close()
        return "the NVIDIA driver answers, but shows no device"
    return found

"""Reads all GPUs on a thread of its own: a driver that hangs or starts slowly must not hold up whoever asks."""

from __future__ import annotations

import threading
import time
from typing import Any

from underfed.observe.gpu.decode import cuda_version, reasons
from underfed.observe.gpu.gpm import Counters
from underfed.observe.gpu.nvml import Nvml, open_nvml


class Watch:
    """Opens NVML in the background: `box` has the devices' fixed facts once known, `take` the latest reading."""

    def __init__(self) -> None:
        self.box: dict[str, Any] | None = None
        self._latest: list[dict[str, Any]] | None = None
        self._wanted = threading.Event()
        self._ready = threading.Event()
        self._closed = False
        threading.Thread(target=self._run, name="underfed-nvml", daemon=True).start()

    def take(self) -> list[dict[str, Any]] | None:
        """Return the reading taken since the last call and ask for the next; None where there is none (yet)."""
        latest, self._latest = self._latest, None
        self._wanted.set()
        return latest

    def wait(self, seconds: float) -> list[dict[str, Any]] | None:
        """Return the next reading, [] where there is no device; None where the driver does not answer in that time."""
        # a second reading right behind the first would count GPM over no time at all, so only a later call asks for one
        if self._ready.is_set() and self.box is not None and self.box["devices"]:
            self._ready.clear()
            self._wanted.set()
        if not self._ready.wait(seconds):
            return None
        latest, self._latest = self._latest, None
        return latest or []

    def close(self) -> None:
        """Stop reading; the thread ends by itself."""
        self._closed = True
        self._wanted.set()

    def _run(self) -> None:
        nvml = open_nvml()
        if isinstance(nvml, str):
            self.box = {"driver": None, "cuda": None, "devices": [], "reason": nvml}
            self._ready.set()
            return
        fixed = [nvml.fixed(index) for index in range(len(nvml.handles))]
        counters = [Counters(nvml, each.device) if each.gpm_supported else None for each in fixed]
        self.box = {
            "driver": nvml.driver(),
            "cuda": cuda_version(nvml.cuda()),
            "devices": [{**each._asdict(), "processes": _count(nvml.processes(each.device))} for each in fixed],
            "reason": None,
        }
        while not self._closed:
            self._latest = [_look(nvml, each.device, counters[each.device]) for each in fixed]
            self._ready.set()
            self._wanted.wait()
            self._wanted.clear()
        for counter in counters:
            if counter is not None:
                counter.close()
        nvml.close()


def _look(nvml: Nvml, index: int, counters: Counters | None) -> dict[str, Any]:
    reading = nvml.reading(index)
    activity = counters.read() if counters is not None else None
    found: dict[str, Any] = {"t_ns": time.time_ns(), **reading._asdict(), "reasons": reasons(reading.throttle)}
    found["gpm"] = activity._asdict() if activity is not None else None
    if activity is None or activity.pcie_rx is None:
        found["pcie_tx_kb"], found["pcie_rx_kb"] = nvml.pcie_kb(index)
    return found


def _count(found: list[int] | None) -> int | None:
    return len(found) if found is not None else None

"""GPM counters (Hopper and later): what the SMs, tensor cores and memory really did between two samples."""

from __future__ import annotations

from typing import Any, NamedTuple

from underfed.observe.gpu.nvml import Nvml


class Activity(NamedTuple):
    """Means between two samples: % of the card's capacity, and MiB/s over PCIe and NVLink."""

    sm: float | None
    occupancy: float | None
    tensor: float | None
    dram: float | None
    pcie_tx: float | None
    pcie_rx: float | None
    nvlink_rx: float | None
    nvlink_tx: float | None


#: NVML's numbers of the metrics, in the order of the fields above.
_METRICS = (2, 3, 5, 10, 20, 21, 60, 61)


class Counters:
    """Keeps the last sample of one device; `read` returns the activity since then. Use only where GPM is supported."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._lib: Any = nvml.library
        self._handle = nvml.handles[index]
        self._last: Any = None

    def read(self) -> Activity | None:
        """Return the activity since the last call; None on the first one and where the device does not answer."""
        lib = self._lib
        try:
            now = lib.nvmlGpmSampleAlloc()
        except Exception:
            return None
        try:
            lib.nvmlGpmSampleGet(self._handle, now)
        except Exception:
            self._free(now)
            return None
        last, self._last = self._last, now
        if last is None:
            return None
        try:
            return self._between(last, now)
        except Exception:
            return None
        finally:
            self._free(last)

    def _between(self, last: Any, now: Any) -> Activity:
        lib = self._lib
        query = lib.c_nvmlGpmMetricsGet_t()
        query.version = lib.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(_METRICS)
        query.sample1, query.sample2 = last, now
        for at, metric in enumerate(_METRICS):
            query.metrics[at].metricId = metric
        lib.nvmlGpmMetricsGet(query)
        # each metric has its own return code; a NaN is how some drivers say that nothing was counted
        answers = [query.metrics[at] for at in range(len(_METRICS))]
        values = [
            answer.value if answer.nvmlReturn == 0 and answer.value == answer.value else None for answer in answers
        ]
        return Activity(*values)

    def _free(self, sample: Any) -> None:
        try:
            self._lib.nvmlGpmSampleFree(sample)
        except Exception:
            self._last = None

    def close(self) -> None:
        """Free the last sample."""
        last, self._last = self._last, None
        if last is not None:
            self._free(last)

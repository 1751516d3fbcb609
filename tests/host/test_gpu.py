"""GPU facts: values recorded on an H200, and a library whose queries fail one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from underfed.observe.gpu import decode
from underfed.observe.gpu.gpm import Activity, Counters
from underfed.observe.gpu.nvml import Nvml, Reading, open_nvml
from underfed.observe.gpu.watch import Watch


@pytest.mark.parametrize(
    ("mask", "words", "slows"),
    [
        (1, ["idle"], []),
        (0, [], []),
        (4, ["power cap"], ["power cap"]),
        (
            0x48,
            ["hardware slowdown", "thermal slowdown (hardware)"],
            ["hardware slowdown", "thermal slowdown (hardware)"],
        ),
        (0x101, ["idle", "display clock setting"], []),
        (0x8004, ["power cap", "unknown 0x8000"], ["power cap"]),
    ],
)
def test_throttle_masks(mask: int, words: list[str], slows: list[str]) -> None:
    assert decode.reasons(mask) == words and decode.slowing(mask) == slows


def test_unknown_is_not_none_of_them() -> None:
    assert decode.reasons(None) is None and decode.slowing(None) == []
    assert (
        decode.cuda_version(13000) == "13.0"
        and decode.cuda_version(12080) == "12.8"
        and decode.cuda_version(None) is None
    )


#: What NVML answered on an H200 (driver 580.159.04) that multiplied 8192 x 8192 bf16 matrices.
BUSY: dict[str, Any] = {
    "nvmlDeviceGetCount": 1,
    "nvmlDeviceGetHandleByIndex": "handle",
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=99, memory=23),
    "nvmlDeviceGetClockInfo": {1: 1530, 2: 3201},
    "nvmlDeviceGetPowerUsage": 690848,
    "nvmlDeviceGetTemperature": 55,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 4,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(total=150754820096, used=1704853504),
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetName": b"NVIDIA H200",
}
READING = Reading(0, 99, 23, 1530, 3201, 690.848, 55, 4, 1704853504, 5, 16)


class Library:
    """Stands for the driver's library, which is not on every machine; `broken` names the query that fails."""

    def __init__(self, answers: dict[str, Any], broken: str = "") -> None:
        self.answers, self.broken = answers, broken

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(name)

        def call(*words: Any) -> Any:
            if name == self.broken:
                raise RuntimeError("Not Supported")
            answer = self.answers[name]
            return answer[words[-1]] if isinstance(answer, dict) else answer

        return call


def test_a_recorded_reading() -> None:
    nvml = Nvml(Library(BUSY))
    assert nvml.reading(0) == READING
    fixed = nvml.fixed(0)
    assert (fixed.name, fixed.memory, fixed.mig, fixed.gpm_supported, fixed.limit_w) == (
        "NVIDIA H200",
        150754820096,
        False,
        None,
        None,
    )


@pytest.mark.parametrize(
    "broken", sorted(set(BUSY) - {"nvmlDeviceGetCount", "nvmlDeviceGetName", "nvmlDeviceGetMigMode"})
)
def test_one_failing_query_loses_no_other(broken: str) -> None:
    found = Nvml(Library(BUSY, broken)).reading(0)._asdict()
    lost = {name for name, value in found.items() if value is None}
    expected = {
        "nvmlDeviceGetUtilizationRates": {"utilization", "mem_utilization"},
        "nvmlDeviceGetClockInfo": {"sm_mhz", "mem_mhz"},
        "nvmlDeviceGetPowerUsage": {"power_w"},
        "nvmlDeviceGetTemperature": {"temp_c"},
        "nvmlDeviceGetCurrentClocksThrottleReasons": {"throttle"},
        "nvmlDeviceGetMemoryInfo": {"mem_used"},
        "nvmlDeviceGetCurrPcieLinkGeneration": {"pcie_gen"},
        "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_width"},
        "nvmlDeviceGetHandleByIndex": set(),
    }
    assert lost == expected[broken]
    assert all(value == READING._asdict()[name] for name, value in found.items() if name not in lost)


class GpmLibrary:
    """Stands for the library's GPM calls: samples are numbers, metrics answer with fixed values or a return code."""

    NVML_GPM_METRICS_GET_VERSION = 1

    def __init__(self, values: dict[int, tuple[int, float]]) -> None:
        self.values, self.alive, self.made = values, set[int](), 0

    def nvmlGpmSampleAlloc(self) -> int:
        self.made += 1
        self.alive.add(self.made)
        return self.made

    def nvmlGpmSampleGet(self, handle: object, sample: int) -> None:
        pass

    def nvmlGpmSampleFree(self, sample: int) -> None:
        self.alive.remove(sample)

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(20)])

    def nvmlGpmMetricsGet(self, query: SimpleNamespace) -> None:
        assert (query.sample1, query.sample2) == (self.made - 1, self.made)
        for metric in query.metrics[: query.numMetrics]:
            metric.nvmlReturn, metric.value = self.values.get(metric.metricId, (3, 0.0))


def test_gpm_between_two_samples_frees_what_it_took() -> None:
    library = GpmLibrary({2: (0, 95.4), 5: (0, 92.6), 10: (0, 15.8), 20: (0, float("nan")), 21: (0, 13.6)})
    nvml: Any = SimpleNamespace(library=library, handles=["handle"])
    counters = Counters(nvml, 0)
    assert counters.read() is None
    for _ in range(3):
        assert counters.read() == Activity(95.4, None, 92.6, 15.8, None, 13.6, None, None)
    assert len(library.alive) == 1
    counters.close()
    assert library.alive == set()


def test_this_machine() -> None:
    found = open_nvml()
    watch = Watch()
    readings = watch.wait(60)
    assert watch.box is not None and readings is not None
    if isinstance(found, str):
        assert len(found) > 10 and watch.box["reason"] == found and readings == [] and watch.wait(60) == []
    else:
        assert len(readings) == len(found.handles) == len(watch.box["devices"]) and watch.box["driver"]
        found.close()
    watch.close()

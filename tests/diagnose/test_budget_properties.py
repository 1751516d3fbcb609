"""The budget of a step: it adds up, nothing is negative, what is not known stays null."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from underfed.diagnose.budget import DeviceTime, HostTime, cpu_budget, gpu_budget, host_time
from underfed.diagnosis import Step
from underfed.recording.records import STEP_REGIONS

MS = st.floats(0, 1e6, allow_nan=False, allow_infinity=False)
KINDS = ["data", "forward", "optimizer", "stall", "eval", "checkpoint", "logging", "progress", "plotting", "compile"]
SHARES = st.dictionaries(st.sampled_from([*KINDS, "comms", "unheard-of"]), st.floats(0.001, 1), max_size=6)


def normal(parts: dict[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {kind: share / total for kind, share in parts.items()}


REGIONS = st.dictionaries(st.sampled_from(STEP_REGIONS), MS, max_size=len(STEP_REGIONS))
SECTIONS = st.dictionaries(st.sampled_from(["pre", "mid", "post"]), SHARES.map(normal), max_size=3)


@st.composite
def device_times(draw: st.DrawFn) -> DeviceTime:
    busy = draw(st.floats(0.001, 1e6))
    parts = [draw(st.floats(0, 1)) for _ in range(3)]
    compute, copy, comms = (busy * part for part in parts)
    return DeviceTime(
        busy=max(busy, compute, copy, comms),
        compute=compute,
        copy=copy,
        comms=comms,
        exposed_comms=comms * draw(st.floats(0, 1)),
        sync_share=draw(st.floats(0, 1)),
    )


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def waits(step: Step) -> dict[str, float | None]:
    return {name: getattr(step.wait_ms, name) for name in step.wait_ms.__struct_fields__}


def parts_of(host: HostTime) -> list[float]:
    return [host.data, host.transfer, host.sync, host.stall, host.comms, host.work, host.other]


@given(REGIONS, SECTIONS)
def test_the_host_adds_up_and_nothing_is_negative(
    regions: dict[str, float], sections: dict[str, dict[str, float]]
) -> None:
    host = host_time(regions, sections)
    assert all(part >= 0 for part in parts_of(host))
    assert close(sum(parts_of(host)), host.step)
    assert close(host.step, sum(regions.values()))


@given(REGIONS, SECTIONS)
def test_a_cpu_budget_adds_up(regions: dict[str, float], sections: dict[str, dict[str, float]]) -> None:
    step = cpu_budget(host_time(regions, sections))
    known = waits(step)
    assert all(value is not None and value >= 0 for value in known.values())
    assert step.device_ms is not None and step.ms is not None
    assert close(step.device_ms + sum(value or 0.0 for value in known.values()), step.ms)


@given(REGIONS, SECTIONS, device_times())
def test_a_gpu_budget_adds_up(
    regions: dict[str, float], sections: dict[str, dict[str, float]], device: DeviceTime
) -> None:
    step = gpu_budget(host_time(regions, sections), device)
    known = waits(step)
    assert step.ms is not None and step.device_ms is not None
    assert all(value is not None and value >= 0 for value in known.values()), known
    assert close(min(step.device_ms, step.ms) + sum(value or 0.0 for value in known.values()), step.ms)


@given(REGIONS, SECTIONS)
def test_without_device_time_what_depends_on_it_stays_null(
    regions: dict[str, float], sections: dict[str, dict[str, float]]
) -> None:
    host = host_time(regions, sections)
    step = gpu_budget(host, None)
    for name in ("device_ms", "device_share", "compute_ms", "copy_ms", "comms_ms", "exposed_comms_ms"):
        assert getattr(step, name) is None
    known = waits(step)
    assert known["launch"] is None and known["sync"] is None and known["other"] is None
    assert known["data"] == host.data


def test_time_without_samples_is_work_before_the_optimizer_and_other_behind_it() -> None:
    host = host_time({"pre": 3.0, "mid": 2.0, "post": 5.0}, {})
    assert (host.work, host.other) == (5.0, 5.0)


def test_a_class_that_is_not_known_is_other() -> None:
    assert host_time({"pre": 4.0}, {"pre": {"unheard-of": 0.25, "forward": 0.75}}).other == 1.0


def test_idle_time_that_the_queue_hid_shrinks_all_waits_alike() -> None:
    host = HostTime(step=100, data=60, transfer=0, sync=0, stall=20, comms=0, work=20, other=0)
    step = gpu_budget(host, DeviceTime(busy=60, compute=60, copy=0, comms=0, exposed_comms=0))
    assert close(step.wait_ms.data or 0, 30) and close(step.wait_ms.stall or 0, 10)
    assert close(step.wait_ms.launch or 0, 0)

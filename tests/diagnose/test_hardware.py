"""Memory, GPU and workers from the host's lines, and what other processes take: on lines whose truth is known."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from underfed.diagnose.hardware import gpu_facts, memory_facts, worker_facts
from underfed.diagnose.machine import cpu_facts, utilization

GIB = 1 << 30
SECOND = 10**9


def memory(at: int, used: float, *, limit: int | None = 64 * GIB, kills: int = 0, cache: int = GIB) -> dict[str, Any]:
    total = 128 * GIB
    held = {"total": total, "available": total - int(used), "limit": limit, "used": int(used) + 3 * cache}
    told = {**held, "cache": cache, "active": 2 * cache, "oom_kills": kills}
    return {"k": "host", "t_ns": at * SECOND, "mem": told, "tree": []}


def process(pid: int, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "utime_ms": 0, "stime_ms": 0, "threads": 3, "rss": GIB, "affinity": 8, **more}


def test_memory_is_what_is_in_use_without_cache_against_the_tightest_limit() -> None:
    found = memory_facts([memory(0, 10 * GIB), memory(1, 12 * GIB)], set())
    assert found is not None
    assert (found.limit, found.used, found.of_group) == (64 * GIB, 12 * GIB, True)
    free = memory_facts([memory(0, 10 * GIB, limit=None)], set())
    assert free is not None
    assert (free.limit, free.used, free.of_group) == (128 * GIB, 10 * GIB, False)


def test_steady_growth_is_measured_and_a_step_or_a_plateau_is_none() -> None:
    steady = memory_facts([memory(at, GIB * (10 + at / 60)) for at in range(300)], set())
    assert steady is not None and steady.growth == pytest.approx(GIB, rel=0.02)
    jump = memory_facts([memory(at, GIB * (10 if at < 200 else 15)) for at in range(300)], set())
    full = memory_facts([memory(at, GIB * min(20, 10 + at)) for at in range(300)], set())
    short = memory_facts([memory(at, GIB * (10 + at)) for at in range(30)], set())
    for found in (jump, full, short):
        assert found is not None and found.growth is None


def test_file_cache_that_fills_is_no_growth() -> None:
    lines = [memory(at, 10 * GIB, cache=at * GIB // 60) for at in range(300)]
    found = memory_facts(lines, set())
    assert found is not None and (found.growth, found.used) == (None, 10 * GIB)
    for line in lines:
        del line["mem"]["active"]
    assert memory_facts(lines, set()) is None


def test_kills_count_from_the_first_line_on() -> None:
    found = memory_facts([memory(0, GIB, kills=3), memory(1, GIB, kills=5)], set())
    assert found is not None and found.kills == 2


def test_the_largest_worker_is_one_of_ours() -> None:
    line = {**memory(0, GIB), "tree": [process(1, rss=9 * GIB), process(2, rss=2 * GIB), process(3, rss=GIB)]}
    found = memory_facts([line], {2, 3})
    assert found is not None and found.worker == 2 * GIB


def test_workers_are_told_from_the_loop() -> None:
    tree = [process(1, affinity=8, threads=40), process(2, affinity=1, threads=9), process(3, affinity=1, threads=11)]
    found = worker_facts([{"tree": tree}], {2, 3}, 1)
    assert found is not None
    assert (found.seen, found.affinity, found.threads, found.loop_affinity) == (2, 1, 10, 8)
    assert worker_facts([{"tree": tree}], {7}, 1) is None


BOX = {
    "device": 0,
    "max_sm_mhz": 1980,
    "limit_w": 700.0,
    "default_limit_w": 700.0,
    "pcie_gen_max": 5,
    "pcie_width_max": 16,
}


def gpu(
    util: int, sm: int = 1980, reasons: tuple[str, ...] = (), link: tuple[int, int] = (5, 16), device: int = 0
) -> Any:
    return {
        "device": device,
        "utilization": util,
        "sm_mhz": sm,
        "reasons": list(reasons),
        "pcie_gen": link[0],
        "pcie_width": link[1],
        "power_w": 500.0,
        "temp_c": 60,
    }


def gpus(*readings: Any, boxes: tuple[Any, ...] = (BOX,)) -> list[dict[str, Any]]:
    return [{"k": "box", "gpu": {"devices": list(boxes)}}, *({"k": "host", "gpu": [one]} for one in readings)]


def test_clocks_and_reasons_count_while_the_gpu_is_busy() -> None:
    hot = "thermal slowdown (hardware)"
    lines = gpus(gpu(0, 345, ("idle",), (1, 16)), gpu(99, 1400, (hot,)), gpu(98, 1600), gpu(97, 1500, (hot, "idle")))
    found = gpu_facts(lines)
    assert found is not None
    assert (found.readings, found.sm_mhz, found.held) == (3, 1500.0, {hot: pytest.approx(2 / 3)})
    assert (found.pcie, found.pcie_max) == ((5, 16), (5, 16))


def test_the_busiest_of_several_gpus_is_the_one() -> None:
    boxes = (BOX, {**BOX, "device": 1, "max_sm_mhz": 2000})
    found = gpu_facts(gpus(gpu(20), gpu(95, 1000, device=1), gpu(90, 1200, device=1), boxes=boxes))
    assert found is not None
    assert (found.devices, found.max_sm_mhz, found.sm_mhz) == (2, 2000, 1100)


def test_without_a_gpu_there_are_no_facts() -> None:
    assert gpu_facts([{"k": "box", "gpu": {"devices": [], "reason": "no driver"}}, {"k": "host", "gpu": []}]) is None


def cpu(at: int, busy: float, mine: dict[int, int]) -> dict[str, Any]:
    """A look at a machine of 8 CPUs (100 ticks a second each) that was busy for `busy` CPU seconds in all."""
    every = 800 * at
    tree = [process(pid, utime_ms=used) for pid, used in mine.items()]
    ticks = {"all_ticks": every, "idle_ticks": every - int(100 * busy), "stolen_ticks": 0}
    return {"k": "host", "t_ns": at * SECOND, "cpu": ticks, "tree": tree}


def others(*lines: dict[str, Any]) -> float | None:
    box = {"k": "box", "cpu": {"visible": 8, "usable": 8.0, "limited_by": "visible"}}
    found = cpu_facts([box, *lines])
    return found.others if found else None


def test_what_others_take_is_what_the_machine_did_and_we_did_not() -> None:
    assert others(cpu(0, 0.0, {5: 1000}), cpu(10, 50.0, {5: 21_000})) == pytest.approx(3.0)


def test_a_process_of_ours_that_ended_is_not_taken_for_another() -> None:
    lines = cpu(0, 0.0, {5: 0, 6: 0}), cpu(5, 30.0, {5: 5_000, 6: 20_000}), cpu(10, 50.0, {5: 30_000})
    assert others(*lines) == pytest.approx(0.0)


def test_one_look_says_nothing_of_others() -> None:
    assert others(cpu(0, 0.0, {5: 0})) is None


def test_older_recordings_name_utilization_differently() -> None:
    assert (utilization({"sm_util": 7}), utilization({"utilization": 8}), utilization([])) == (7.0, 8.0, None)


NAMES = ["mem", "cpu", "gpu", "tree", "devices", "pid", "rss", "t_ns", "used", "limit", "device"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
        )
    ),
    max_leaves=12,
)


def test_a_later_line_without_devices_does_not_hide_the_card() -> None:
    empty: dict[str, Any] = {"gpu": {"devices": []}}
    found = gpu_facts([{"k": "box", "gpu": {"devices": [BOX]}}, empty])
    assert found is not None and found.devices == 1


@settings(max_examples=300, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["mem", "cpu", "gpu", "tree", "t_ns", "k"]), anything), max_size=4))
def test_lines_of_any_shape_are_not_an_error(lines: list[dict[str, Any]]) -> None:
    found = cpu_facts([{"k": "box", "cpu": {"visible": 8, "usable": 8.0}}, *lines])
    assert found is not None and (found.others is None or found.others >= 0)
    memory = memory_facts(lines, {1})
    assert memory is None or memory.kills == int(memory.kills)
    workers = worker_facts(lines, {1}, 2)
    assert workers is None or workers.seen == 1
    gpu = gpu_facts([{"k": "box", "gpu": {"devices": [BOX]}}, *lines])
    assert gpu is not None and gpu.devices >= 1
    bare = gpu_facts(lines)
    assert bare is None or bare.devices >= 1

"""How long the CPU quota stopped a run, against the kernel's counters as a group of known CPUs writes them."""

from __future__ import annotations

from typing import Any

import pytest

from underfed.diagnose.machine import cpu_facts, gpu_utilization, queue_wait

PERIOD_MS = 100


def lines(seconds: int, stopped_ms: float, cpus: int, *, every: int = 1, before: int = 0) -> list[dict[str, Any]]:
    """A second a line: every so many periods, each CPU stands still for a while."""
    found: list[dict[str, Any]] = [{"k": "box", "cpu": {"visible": cpus, "usable": 2.0}}]
    for second in range(seconds + 1):
        periods = second * 1000 // PERIOD_MS
        throttled = periods // every
        cpu = {
            "throttled_us": before + int(throttled * stopped_ms * 1000 * cpus),
            "nr_throttled": before + throttled,
            "nr_periods": before + periods,
        }
        found.append({"k": "host", "t_ns": second * 10**9, "cpu": cpu})
    return found


def share(found: list[dict[str, Any]]) -> float | None:
    facts = cpu_facts(found)
    assert facts is not None
    return facts.throttled_share


@pytest.mark.parametrize("before", [0, 12345])
def test_one_cpu_counts_as_the_wall_clock_does(before: int) -> None:
    assert share(lines(10, 30, 1, before=before)) == pytest.approx(0.3)


def test_many_cpus_cannot_stand_still_for_longer_than_there_is_time() -> None:
    assert share(lines(10, 30, 64)) == pytest.approx(1.0)
    assert share(lines(10, 30, 64, every=5)) == pytest.approx(0.2)


def test_no_quota_is_no_throttling_and_no_counters_are_not_known() -> None:
    assert share(lines(10, 0, 4)) == 0.0
    assert share([{"k": "box", "cpu": {}}, *({"t_ns": t, "cpu": {}} for t in range(5))]) is None
    assert share(lines(0, 30, 1)) is None


@pytest.mark.parametrize("odd", [10**400, float("nan"), float("inf"), "7", True, None, [1]])
def test_a_counter_that_is_no_number_leaves_its_line_out(odd: Any) -> None:
    found = lines(10, 30, 1)
    found.insert(4, {"t_ns": 5, "cpu": {"throttled_us": odd, "nr_throttled": 1, "nr_periods": 1}})
    assert share(found) == pytest.approx(0.3)


@pytest.mark.parametrize("odd", [5, "x", {"a": 1}, [3, None, "y"], True])
def test_devices_and_processes_that_are_none_are_not_known(odd: Any) -> None:
    assert gpu_utilization([{"gpu": odd}]) is None
    assert queue_wait([{"tree": odd}], {1}) is None

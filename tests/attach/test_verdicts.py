"""The verdict of real runs whose truth is known by construction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from attach_help import ALONE, TWO_RANKS, Look, line_of, look_at

pytest.importorskip("torch")

#: Runs that use next to no CPU: they are looked at all at once.
LIGHT = {
    "starved-0": ("starved", "0"),
    "starved-2": ("starved", "2"),
    "logs": ("logs",),
    "in_thread": ("in_thread",),
    "lock_twice": ("lock_twice",),
    "queue_stuck": ("queue_stuck",),
    "socket": ("socket_stuck", "2"),
    "late_rank": ("late_rank",),
    "ddp_late": ("ddp_late",),
    "skips_collective": ("skips_collective",),
}
RANKS = {"late_rank", "ddp_late", "skips_collective"}


@pytest.fixture(scope="module")
def light() -> dict[str, Look]:
    def one(name: str) -> Look:
        return look_at(*LIGHT[name], launcher=TWO_RANKS if name in RANKS else ALONE)

    with ThreadPoolExecutor(10) as pool:
        return dict(zip(LIGHT, pool.map(one, LIGHT), strict=True))


def test_a_serial_loader_that_waits_is_data_bound_at_its_line(light: dict[str, Look]) -> None:
    seen = light["starved-0"]
    assert seen.verdict["bound"] == "data"
    assert seen.verdict["cause"] == "T4"
    assert "U8" in seen.rules
    assert line_of("starved", "# the read") in seen.text
    assert "data-bound" in seen.out


def test_workers_that_wait_are_told_from_workers_that_compute(light: dict[str, Look]) -> None:
    seen = light["starved-2"]
    assert (seen.verdict["bound"], seen.verdict["cause"]) == ("data", "U8")
    assert line_of("starved", "# the read") in seen.text
    (workers,) = seen.data["live"]["workers"]
    assert workers["count"] == 2
    assert workers["compute_share"] < 0.35
    assert seen.roles() == ["rank", "worker", "worker"]


def test_workers_on_a_slow_socket_are_found_at_their_line(light: dict[str, Look]) -> None:
    seen = light["socket"]
    assert (seen.verdict["bound"], seen.verdict["cause"]) == ("data", "U8")
    assert line_of("socket_stuck", "# the slow socket") in seen.text


def test_logging_between_steps_is_host_bound_at_its_line(light: dict[str, Look]) -> None:
    seen = light["logs"]
    assert (seen.verdict["bound"], seen.verdict["cause"]) == ("host", "X8")
    assert line_of("logs", "# a server far away") in seen.text


def test_training_in_a_thread_is_found_behind_a_main_thread_that_joins(light: dict[str, Look]) -> None:
    seen = light["in_thread"]
    assert seen.data["live"]["ranks"][0]["thread"] == "trainer"
    assert (seen.verdict["bound"], seen.verdict["cause"]) == ("data", "X3")
    assert line_of("in_thread", "# the read") in seen.text


def test_a_lock_taken_twice_is_hung(light: dict[str, Look]) -> None:
    seen = light["lock_twice"]
    assert seen.head.startswith("hung")
    assert seen.verdict["confidence"] == "high"
    assert line_of("lock_twice", "# held already") in seen.text
    assert seen.out.count("save (") == 1, "its stack is printed once"


def test_a_loader_whose_workers_never_answer_is_hung(light: dict[str, Look]) -> None:
    seen = light["queue_stuck"]
    assert seen.head.startswith("hung")
    assert seen.verdict["bound"] == "data"
    assert line_of("queue_stuck", "# never set") in seen.text


def test_a_rank_that_leaves_out_a_collective_is_named_with_every_ranks_stack(light: dict[str, Look]) -> None:
    seen = light["skips_collective"]
    assert seen.head.startswith("hung")
    assert seen.verdict["bound"] == "comms"
    assert "rank 1 is not in it" in seen.text
    assert line_of("skips_collective", "# never set") in seen.text
    stacks = [line for line in seen.out.splitlines() if line.startswith("where rank")]
    assert len(stacks) == 2
    assert seen.roles() == ["launcher", "rank", "rank"]


@pytest.mark.parametrize("name", ["late_rank", "ddp_late"])
def test_the_late_rank_is_named_by_those_that_wait_in_the_collective(light: dict[str, Look], name: str) -> None:
    seen = light[name]
    assert seen.verdict["bound"] == "comms"
    assert seen.head == "waiting in a collective"
    assert "wait for rank 1" in seen.text
    assert line_of(name, "# the late one") in seen.text
    assert seen.roles() == ["launcher", "rank", "rank"]


def test_no_look_at_a_calm_run_stopped_it_or_failed(light: dict[str, Look]) -> None:
    for seen in light.values():
        sampled = seen.data["live"]["sampled"]
        assert sampled["reason"] is None
        assert sampled["errors"] <= 0.05 * sampled["samples"]
        assert all(each["state"] not in "Tt" for each in seen.data["live"]["processes"])


def test_workers_that_compute_are_transforming() -> None:
    seen = look_at("transform", "2")
    assert seen.verdict["bound"] == "data"
    assert seen.verdict["cause"] in {"T8", "T4"}
    assert "compute" in seen.text
    assert line_of("transform", "# the transform") in seen.text
    assert seen.data["live"]["workers"][0]["compute_share"] > 0.6


def test_a_large_layer_is_compute_bound() -> None:
    seen = look_at("compute")
    assert seen.verdict["bound"] == "compute"
    assert seen.data["findings"] == []
    assert seen.data["subject"]["device"] == "CPU"
    assert "compute-bound" in seen.out


@pytest.mark.slow
def test_python_between_the_steps_is_host_bound() -> None:
    seen = look_at("host")
    assert (seen.verdict["bound"], seen.verdict["cause"]) == ("host", "X9")
    assert line_of("host", "# the metrics") in seen.text


@pytest.mark.slow
def test_more_threads_than_cpus_are_oversubscribed() -> None:
    seen = look_at("threads")
    assert seen.head == "threads oversubscribed"
    assert seen.verdict["cause"] == "T3"


@pytest.mark.slow
def test_native_work_at_a_line_of_the_users_own_is_compute_and_not_python() -> None:
    seen = look_at("matmul")
    assert seen.verdict["bound"] == "compute"


@pytest.mark.slow
def test_eight_workers_are_all_seen() -> None:
    seen = look_at("starved", "8")
    assert seen.roles() == ["rank", *["worker"] * 8]
    assert seen.verdict["bound"] == "data"

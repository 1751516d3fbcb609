"""How long processes wait for a CPU, from the kernel's counts: cumulative from each process's start, in ns."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from underfed.diagnose.machine import queue_wait

SCHEDSTAT = Path("/proc/self/schedstat")


def line(*processes: tuple[int, int | None, int | None]) -> dict[str, Any]:
    return {"k": "host", "tree": [{"pid": pid, "run_ns": run, "wait_ns": wait} for pid, run, wait in processes]}


def test_it_is_the_growth_between_the_first_and_the_last_look() -> None:
    host = [line((1, 100, 900)), line((1, 200, 1000)), line((1, 300, 1100))]
    assert queue_wait(host, {1}) == pytest.approx(1.0)


def test_a_process_seen_once_tells_of_its_life() -> None:
    assert queue_wait([line((1, 100, 400))], {1}) == pytest.approx(4.0)


def test_processes_add_up_and_others_do_not_count() -> None:
    host = [line((1, 0, 0), (2, 0, 0), (3, 0, 0)), line((1, 10, 20), (2, 30, 20), (3, 1, 999))]
    assert queue_wait(host, {1, 2}) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "host", [[], [{}], [{"tree": None}], [line((2, 5, 5))], [line((1, None, None))], [line((1, 0, 0))]]
)
def test_what_is_not_known_is_none(host: list[dict[str, Any]]) -> None:
    assert queue_wait(host, {1}) is None


@pytest.mark.skipif(not SCHEDSTAT.exists(), reason="the kernel keeps no scheduler statistics")
def test_processes_that_share_one_cpu_queue_for_it() -> None:
    """Two processes that never sleep, held to one CPU, are each on it for half of the time at most."""
    cpu = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"
    workers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        host = []
        for _ in range(3):
            time.sleep(0.5)
            counts = {w.pid: Path(f"/proc/{w.pid}/schedstat").read_text().split() for w in workers}
            host.append(line(*((pid, int(found[0]), int(found[1])) for pid, found in counts.items())))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    found = queue_wait(host, {worker.pid for worker in workers})
    assert found is not None and found > 0.7

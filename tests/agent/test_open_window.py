"""A run that ends while its window is open: it ends as it would, and what was traced is kept or said to be missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from underfed.recording import records as r

ENDS_IN_THE_WINDOW = """
import os, sys
from time import perf_counter_ns, time_ns
from torch.profiler import ProfilerActivity, profile
model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
def steps(count):
    for _ in range(count):
        opt.zero_grad(); model(torch.ones(2, 4)).sum().backward(); opt.step()
steps(5)
if '_underfed_agent' in sys.modules:
    from _underfed_agent import core, window
    open_one = window.Window(torch, 10)
    ours = profile(activities=[ProfilerActivity.CPU])
    ours.start()
    open_one.profile, open_one.first, open_one.unix_first, open_one.start_ns = ours, perf_counter_ns(), time_ns(), 0
    window._armed.append(open_one)
    core.S.on_boundary.append(open_one.on_boundary)
steps(int(sys.argv[1]))
if sys.argv[2] == 'fork':
    child = os.fork()
    if child == 0:
        os._exit(5)  # as multiprocessing does: after a trace torch 2.13 hangs in a fork's static destructors
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(3)
"""


def traces(folder: Path) -> list[dict[str, Any]]:
    """What the agents wrote of their windows."""
    lines = [line for file in sorted(folder.rglob("*.jsonl")) for line in file.read_text().splitlines()]
    return [found for line in lines if (found := json.loads(line)).get("k") == "trace"]


@pytest.mark.parametrize(
    ("steps", "state", "how"),
    [
        (4, "saved", "plain"),
        (1, "skipped", "fork"),
        pytest.param(4, "saved", "fork", marks=pytest.mark.slow),
        pytest.param(1, "skipped", "plain", marks=pytest.mark.slow),
    ],
)
def test_the_window_is_closed_at_the_exit(run: Callable[..., Any], steps: int, state: str, how: str) -> None:
    watched = run(ENDS_IN_THE_WINDOW, str(steps), how)
    assert watched.code == 3
    assert watched.out == ("5\n" if how == "fork" else "")
    (trace,) = traces(watched.folder)
    assert trace["state"] == state
    if state == "saved":
        assert trace["steps"] == steps
        (file,) = watched.folder.rglob(trace["file"])
        assert json.loads(file.read_text())["traceEvents"]
    else:
        assert "two whole steps" in trace["reason"]


SLOW_TO_STOP = ENDS_IN_THE_WINDOW.replace(
    "    open_one.profile,",
    """    import time
    plain, open_one.steps = ours.stop, 3
    def stop():
        for _ in range(15):
            time.sleep(0.05)  # stopping
        plain()
    ours.stop = stop
    open_one.profile,""",
).replace("steps(int(sys.argv[1]))", "steps(3); time.sleep(0.4); steps(20); time.sleep(0.4); steps(3)  # between")


def test_the_windows_own_work_is_no_place_in_the_loop(run: Callable[..., Any]) -> None:
    watched = run(SLOW_TO_STOP, "0", "plain")
    assert watched.code == 3
    assert [trace["state"] for trace in traces(watched.folder)] == ["saved"]
    lines = (watched.folder.parent / "a.py").read_text().splitlines()
    stopping, between = (
        next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {name}"))
        for name in ("stopping", "between")
    )
    places = [row[2] for log in watched.recording.processes for line in log.of(r.Stacks) for row in line.rows]
    assert any(place.endswith(f"a.py:{between}") for place in places)
    assert not any(place.endswith(f"a.py:{stopping}") for place in places)

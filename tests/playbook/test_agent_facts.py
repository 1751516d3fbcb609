"""What a real process tells of its Python threads and of denormal numbers, for the rules X21 and X22."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from underfed.recording import records as r
from underfed.recording.read import read

SCRIPT = """
import sys, threading, time
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
done = False


def spin():
    while not done:
        sum(range(100))


threading.Thread(target=spin, daemon=True).start()
with torch.no_grad():
    model.weight[:16] = 1e-40
end = time.monotonic() + 7
while time.monotonic() < end:
    model.bias.grad = torch.zeros(32)
    optimizer.step()
    time.sleep(0.002)
done = True
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[r.Facts]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("threads")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "underfed", "run", "--out", "seen", "--", sys.executable, "train.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (log,) = [log for log in read(folder / "seen").processes if log.of(r.Facts)]
    return log.of(r.Facts)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc/self/task on this system")
def test_cpu_time_of_a_python_thread_is_counted_with_its_place(facts: list[r.Facts]) -> None:
    seen = [line.python_threads for line in facts if line.python_threads]
    assert len(seen) >= 2
    assert seen[-1]["count"] == 1 and seen[-1]["where"].endswith("train.py:11")
    assert seen[-1]["others"] > seen[0]["others"] > 0 and seen[-1]["training"] >= seen[0]["training"] > 0


def test_denormal_weights_are_counted(facts: list[r.Facts]) -> None:
    shares = [line.denormals for line in facts if line.denormals is not None]
    assert shares and shares[-1] == pytest.approx(512 / (1024 + 32), abs=0.01)


def test_no_scaler_called_the_step(facts: list[r.Facts]) -> None:
    optimizers = facts[-1].optimizers
    assert optimizers and optimizers[0]["scaled"] is False


def test_a_scaler_that_calls_the_step_is_seen() -> None:
    torch = pytest.importorskip("torch")
    from underfed.observe.agent import facts as agent

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    noted: list[bool] = []
    handle = optimizer.register_step_pre_hook(lambda *_: noted.append(agent._from_scaler()))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    optimizer.step()
    handle.remove()
    assert noted == [True, False]


def test_an_optimizer_of_an_odd_kind_costs_one_fact_and_not_the_others() -> None:
    torch = pytest.importorskip("torch")
    from underfed.observe.agent import facts as agent

    class Odd:
        param_groups = ({"params": [torch.nn.Parameter(torch.ones(3))]},)

        @property
        def state(self) -> dict[object, object]:
            raise RuntimeError("not to be read")

    odd = Odd()
    agent.forget()
    agent.note_optimizer(odd)
    found = agent.collect()
    agent.forget()
    assert found["denormals"] is None and found["threads"] == torch.get_num_threads()

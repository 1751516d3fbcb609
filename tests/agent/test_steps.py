"""A step is an optimizer step, whatever the loop looks like, and all of its wall clock is accounted for."""

from __future__ import annotations

import pytest

from conftest import Run, exact
from underfed.recording import records as r

pytestmark = pytest.mark.torch

HEAD = """
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
net = nn.Linear(8, 4)
data = TensorDataset(torch.randn(320, 8), torch.randint(0, 4, (320,)))
loader = DataLoader(data, batch_size=8)
def loss_of(x, y): return nn.functional.cross_entropy(net(x), y)
"""

PLAIN = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad(); loss_of(x, y).backward(); opt.step()
"""
ACCUMULATION = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss_of(x, y).backward()
    if i % 4 == 3:
        opt.step(); opt.zero_grad()
"""
TWO_OPTIMIZERS = """
other = nn.Linear(8, 4)
one, two = torch.optim.Adam(net.parameters()), torch.optim.Adam(other.parameters())
for x, y in loader:
    one.zero_grad(); loss_of(x, y).backward(); one.step()
    two.zero_grad(); nn.functional.cross_entropy(other(x), y).backward(); two.step()
"""
CLOSURE = """
opt = torch.optim.LBFGS(net.parameters(), max_iter=3)
for x, y in loader:
    def closure():
        opt.zero_grad(); loss = loss_of(x, y); loss.backward(); return loss
    opt.step(closure)
"""
OWN_CLASS = """
class Mine(torch.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group['params']: p -= 0.1 * p.grad
opt = Mine(net.parameters())
for x, y in loader:
    opt.zero_grad(); loss_of(x, y).backward(); opt.step()
"""
SCALER = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler('cpu')
for x, y in loader:
    opt.zero_grad(); scaler.scale(loss_of(x, y)).backward(); scaler.step(opt); scaler.update()
"""
A_STEP_FAILS = """
class Moody(torch.optim.SGD):
    def step(self, closure=None):
        global seen
        seen += 1
        if seen % 5 == 0: raise ValueError('moody')
        return super().step(closure)
seen = 0
opt = Moody(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad(); loss_of(x, y).backward()
    try: opt.step()
    except ValueError: pass
"""
IN_A_THREAD = """
import threading
def work():
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in loader:
        opt.zero_grad(); loss_of(x, y).backward(); opt.step()
thread = threading.Thread(target=work); thread.start(); thread.join()
"""
BACKWARD_ONLY = """
for x, y in loader:
    net.zero_grad(); loss_of(x, y).backward()
    with torch.no_grad():
        for p in net.parameters(): p -= 0.1 * p.grad
"""
LOADER_ONLY = """
with torch.no_grad():
    for x, y in loader: net(x)
"""


@pytest.mark.parametrize(
    ("loop", "kind", "steps"),
    [
        pytest.param(PLAIN, r.BY_OPTIMIZER, 40, id="plain"),
        pytest.param(ACCUMULATION, r.BY_OPTIMIZER, 10, id="accumulation"),
        pytest.param(TWO_OPTIMIZERS, r.BY_OPTIMIZER, 40, id="two-optimizers"),
        pytest.param(CLOSURE, r.BY_OPTIMIZER, 40, id="closure", marks=pytest.mark.slow),
        pytest.param(OWN_CLASS, r.BY_OPTIMIZER, 40, id="own-class", marks=pytest.mark.slow),
        pytest.param(SCALER, r.BY_OPTIMIZER, 40, id="scaler"),
        pytest.param(A_STEP_FAILS, r.BY_OPTIMIZER, 32, id="a-step-fails"),
        pytest.param(IN_A_THREAD, r.BY_OPTIMIZER, 40, id="in-a-thread"),
        pytest.param(BACKWARD_ONLY, r.BY_BACKWARD, 40, id="backward-only"),
        pytest.param(LOADER_ONLY, r.BY_LOADER, 40, id="loader-only"),
    ],
)
def test_steps_are_counted_and_add_up(run: Run, loop: str, kind: int, steps: int) -> None:
    seen = run(HEAD + loop + "print(sum(float(p.sum()) for p in net.parameters()))\n")
    assert seen.code == 0, seen.err
    rows = seen.rows(kind)
    # The first boundary opens the first row, and a loop's end is one more fetch that finds nothing.
    assert steps - 1 <= len(rows) <= steps + 1
    assert all(exact(row) for row in rows)
    assert not seen.main.of(r.Fault)


def test_the_training_computes_the_same(run: Run) -> None:
    source = HEAD + PLAIN + "print([p.tolist() for p in net.parameters()])\n"
    assert run(source).out == run(source, bare=True, name="b").out


def test_two_loaders_are_training_and_validation(run: Run) -> None:
    seen = run(
        HEAD
        + """
import time
class Slow(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): time.sleep(0.004); return data[i]
check = DataLoader(Slow(), batch_size=4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        opt.zero_grad(); loss_of(x, y).backward(); opt.step()
    for x, y in check: net(x)
"""
    )
    rows = seen.rows(r.BY_OPTIMIZER)
    at = r.STEP_COLUMNS.index("eval")
    evaluated = [row[at] for row in rows if row[at] > 0]
    assert len(evaluated) == 2, "between the three epochs; what follows the last step is no step's"
    assert all(ns >= 8 * 4e6 for ns in evaluated)


def test_no_step_is_watched_beyond_the_wished_number(run: Run, tmp_path) -> None:
    import subprocess
    import sys

    script = tmp_path / "s.py"
    script.write_text("import torch\n" + HEAD + PLAIN + "print('ended')\n")
    command = [
        sys.executable,
        "-m",
        "underfed",
        "run",
        "--steps",
        "12",
        "--out",
        str(tmp_path / "o"),
        "--",
        sys.executable,
    ]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
    from underfed.recording.read import read

    assert done.stdout == "ended\n"
    assert sum(len(log.step_rows()) for log in read(tmp_path / "o").processes) == 12


BEHIND_THE_LOOP = """
import time
model = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(40):
    opt.zero_grad(); model(torch.ones(2, 4)).sum().backward(); opt.step()
    time.sleep(0.02)  # between
for _ in range(8):
    time.sleep(0.2)  # behind
"""


def test_what_comes_behind_the_last_step_is_no_steps_time(run: Run) -> None:
    watched = run(BEHIND_THE_LOOP)
    source = (watched.folder.parent / "a.py").read_text().splitlines()
    (between,) = (number for number, line in enumerate(source, 1) if line.endswith("# between"))
    (behind,) = (number for number, line in enumerate(source, 1) if line.endswith("# behind"))
    places = [row[2] for log in watched.recording.processes for line in log.of(r.Stacks) for row in line.rows]
    assert any(place.endswith(f"a.py:{between}") for place in places)
    assert not any(place.endswith(f"a.py:{behind}") for place in places)

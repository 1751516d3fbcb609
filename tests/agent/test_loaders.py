"""What the agent writes of loaders: their set-up, each fetch, and who waited."""

from __future__ import annotations

import pytest

from conftest import Run
from underfed.recording import records as r

pytestmark = pytest.mark.torch

TRAIN = """
import time
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 48
    def __getitem__(self, i):
        {work}
        return torch.randn(8), i % 4
def main(workers, context, persistent):
    net = nn.Linear(8, 4)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    options = dict(multiprocessing_context=context, persistent_workers=persistent)
    loader = DataLoader(Slow(), batch_size=8, num_workers=workers, **options)
    for epoch in range({epochs}):
        for x, y in loader:
            opt.zero_grad(); nn.functional.cross_entropy(net(x), y).backward(); opt.step()
if __name__ == '__main__':
    main({call})
"""
SLEEP = "time.sleep(0.003)"
COMPUTE = "sum(k * k for k in range(40000))"


def source(work: str, call: str, epochs: int = 2) -> str:
    return TRAIN.format(work=work, call=call, epochs=epochs)


def fetches(seen) -> list[list[int | None]]:
    logs = [*seen.recording.processes, *seen.recording.workers]
    return [row for log in logs for line in log.of(r.Fetches) for row in line.rows]


@pytest.mark.parametrize(
    ("context", "persistent"),
    [
        ("fork", True),
        ("spawn", True),
        pytest.param("forkserver", True, marks=pytest.mark.slow),
        pytest.param("fork", False, marks=pytest.mark.slow),
        pytest.param("spawn", False, marks=pytest.mark.slow),
        pytest.param("forkserver", False, marks=pytest.mark.slow),
    ],
)
def test_every_fetch_of_every_worker_is_seen(run: Run, context: str, persistent: bool) -> None:
    seen = run(source(SLEEP, f"2, {context!r}, {persistent}"))
    assert seen.code == 0, seen.err
    assert len(fetches(seen)) == 12
    assert len(seen.rows(r.BY_OPTIMIZER)) in (11, 12)
    loader = seen.main.of(r.Loader)[0]
    assert (loader.workers, loader.batch, loader.persistent, loader.context) == (2, 8, persistent, context)
    assert loader.dataset == "Slow" and loader.length == 6
    lines = (seen.folder.parent / "a.py").read_text().splitlines()
    assert "DataLoader(" in lines[int(loader.made_at.rsplit(":", 1)[1]) - 1]
    assert "__getitem__" in lines[int(loader.item_at.rsplit(":", 1)[1]) - 1]


def test_many_short_epochs_with_workers_do_not_hang(run: Run) -> None:
    seen = run(source("pass", "2, None, False", epochs=25))
    assert seen.code == 0, seen.err
    assert len(fetches(seen)) == 25 * 6


OWN_CLOCK = """
import time
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Clocked(Dataset):
    def __len__(self): return 48
    def __getitem__(self, i):
        wall, cpu = time.perf_counter(), time.thread_time()
        {work}
        return torch.tensor([time.perf_counter() - wall, time.thread_time() - cpu], dtype=torch.float64)
net = nn.Linear(2, 1).double()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
total = torch.zeros(2, dtype=torch.float64)
begin = time.perf_counter()
for x in DataLoader(Clocked(), batch_size=8, num_workers={workers}):
    total += x.sum(0)
    opt.zero_grad(); net(x).sum().backward(); opt.step()
print(*total.tolist(), time.perf_counter() - begin)
"""


@pytest.mark.parametrize(
    ("workers", "work"),
    [
        (0, COMPUTE),
        (1, SLEEP),
        pytest.param(0, SLEEP, marks=pytest.mark.slow),
        pytest.param(1, COMPUTE, marks=pytest.mark.slow),
    ],
)
def test_wall_and_cpu_time_are_those_of_the_datasets_own_clocks(run: Run, work: str, workers: int) -> None:
    """However busy the machine is: the fetches follow one another, so that none can take time of outside the loop."""
    seen = run(OWN_CLOCK.format(work=work, workers=workers))
    rows = fetches(seen)
    wall, cpu = sum(row[1] for row in rows) * 1e-9, sum(row[2] for row in rows) * 1e-9
    own_wall, own_cpu, loop = map(float, seen.out.split())
    assert len(rows) == 6
    assert own_wall <= wall <= loop
    # Collating six batches comes on top.
    assert own_cpu <= cpu <= 1.5 * own_cpu + 0.05
    assert all(row[6] <= row[1] for row in rows), "collating is a part of a fetch"


@pytest.mark.alone  # what holds a few of the chosen fetches up counts thirteenfold
def test_a_few_of_many_short_fetches_stand_for_all(run: Run) -> None:
    """Against a stopwatch in the dataset; every eighth sample is slow, which a fixed stride would meet or miss."""
    body = """
import time
from torch import nn
from torch.utils.data import DataLoader, Dataset
spent = []
class Uneven(Dataset):
    def __len__(self): return 2400
    def __getitem__(self, i):
        begin = time.perf_counter()
        if i % 8 == 0: time.sleep(0.002)
        x = torch.ones(4)
        spent.append(time.perf_counter() - begin)
        return x
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x in DataLoader(Uneven(), batch_size=1):
    opt.zero_grad(); net(x).sum().backward(); opt.step()
print(sum(spent) / len(spent) * 1e9)
"""
    seen = run(body)
    walls = [row[1] for row in fetches(seen)]
    assert 2400 / 13 <= len(walls) < 2400
    mean, true = sum(walls) / len(walls), float(seen.out)
    assert 0.6 * true < mean < 2.0 * true, "fetching adds collating to what the dataset itself takes"


def test_a_dataset_that_is_walked_is_known_as_such_with_its_own_line(run: Run) -> None:
    body = """
from torch.utils.data import DataLoader, IterableDataset
class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(6))
for _ in DataLoader(Stream(), batch_size=2): pass
"""
    seen = run(body)
    loader = seen.main.of(r.Loader)[0]
    lines = (seen.folder.parent / "a.py").read_text().splitlines()
    assert loader.iterable
    assert "__iter__" in lines[int(loader.item_at.rsplit(":", 1)[1]) - 1]


def test_an_error_in_a_dataset_reaches_the_program_as_it_is(run: Run) -> None:
    body = """
from torch.utils.data import DataLoader, Dataset
import traceback
class Bad(Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): raise KeyError(f'sample {i}')
try:
    list(DataLoader(Bad(), batch_size=2))
except KeyError as error:
    stack = traceback.extract_tb(error.__traceback__)
    frames = [f.name for f in stack if '/observe/agent/' not in f.filename]
    print(repr(error), frames)
"""
    assert run(body).out == run(body, bare=True, name="b").out


def test_loaders_can_still_be_inspected_copied_and_pickled(run: Run) -> None:
    body = """
import copy, inspect, pickle
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.arange(8.)), batch_size=3)
print(inspect.signature(DataLoader.__init__))
print(len(list(copy.deepcopy(loader))), len(list(pickle.loads(pickle.dumps(loader)))), sorted(vars(loader)))
class Sub(DataLoader):
    def __init__(self, *a, **k): super().__init__(*a, **k); self.mine = 1
print(len(list(Sub(loader.dataset, batch_size=None))), DataLoader.__iter__.__name__)
"""
    assert run(body).out == run(body, bare=True, name="b").out

"""What the agent reads of DistributedDataParallel: against a hook of known length and a known use of `no_sync()`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Run
from underfed.diagnose.gather import exchange_facts
from underfed.diagnose.run import diagnose
from underfed.diagnosis import to_json
from underfed.recording import records as r

pytestmark = pytest.mark.torch

TRAIN = """
import contextlib, sys, threading
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group('gloo', init_method=f'file://{sys.argv[1]}/meet', rank=0, world_size=1)
exchanging = float(sys.argv[2])
def slow(state, bucket):
    done, buffer = torch.futures.Future(), bucket.buffer()
    threading.Timer(exchanging, done.set_result, (buffer,)).start()
    return done
model = DistributedDataParallel(nn.Linear(8, 4))
model.register_comm_hook(None, slow)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    for micro in range(4):
        with model.no_sync() if micro < int(sys.argv[3]) else contextlib.nullcontext():
            model(torch.ones(4, 8)).sum().backward()
    opt.step()
    opt.zero_grad()
print(f'{model.module.weight.sum().item():.6f}')
dist.destroy_process_group()
"""


@pytest.mark.alone  # what delays the backward pass hides a part of the exchange
@pytest.mark.parametrize(("skipped", "times"), [(3, 1), pytest.param(0, 4, marks=pytest.mark.slow)])
def test_the_exchange_is_read_as_torch_times_it(run: Run, tmp_path: Path, skipped: int, times: int) -> None:
    seen = run(TRAIN, str(tmp_path), "0.01", str(skipped))
    assert seen.code == 0, seen.err
    assert not seen.main.of(r.Fault)
    found = exchange_facts(seen.main, 0)
    assert found is not None
    assert found.passes == pytest.approx(4, abs=0.3)
    assert found.times == pytest.approx(times, abs=0.3)
    assert 10 * times * 0.9 <= found.exposed <= found.total
    assert found.bytes == 4 * (8 * 4 + 4)


def test_a_short_exchange_is_short_and_the_numbers_stay(run: Run, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    seen = run(TRAIN, str(tmp_path / "one"), "0", "0")
    bare = run(TRAIN, str(tmp_path / "two"), "0", "0", bare=True, name="b")
    assert (seen.code, seen.out) == (0, bare.out), seen.err
    found = exchange_facts(seen.main, 0)
    assert found is not None
    assert found.exposed < 10.0 * 4, "no sleep is in it"


@pytest.mark.alone  # as above
def test_the_budget_gives_the_exchange_to_comms(run: Run, tmp_path: Path) -> None:
    seen = run(TRAIN, str(tmp_path), "0.02", "0")
    diagnosis = json.loads(to_json(diagnose(seen.recording)))
    assert diagnosis["verdict"]["bound"] == "comms"
    assert diagnosis["verdict"]["cause"] == "T23"
    assert 4 * 20 * 0.9 <= diagnosis["step"]["wait_ms"]["comms"] <= diagnosis["step"]["ms"]
    first = next(one for one in diagnosis["findings"] if one["rule"] == "T23")
    assert "no_sync" in first["fix"]["code"]
    # Three of four exchanges of 20 ms can go; what is left of the step is at least the fourth.
    assert first["gain"]["expected"][0] <= diagnosis["step"]["ms"] / (diagnosis["step"]["ms"] - 60) * 1.1

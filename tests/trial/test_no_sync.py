"""The switch that exchanges gradients once a step: against a script that does so itself, and counts its exchanges."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trial_help import tried, written

from underfed.trial.measured import Measured
from underfed.trial.once import run_once

pytestmark = pytest.mark.torch

SCRIPT = """
import contextlib, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
own, passes = sys.argv[1] == 'own', [int(word) for word in sys.argv[2].split(',')]
dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
net = DistributedDataParallel(nn.Linear(16, 1))
exchanges = 0
def hook(state, bucket):
    global exchanges
    exchanges += 1
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
net.register_comm_hook(None, hook)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for count in passes:
    for at in range(count):
        with net.no_sync() if own and at < count - 1 else contextlib.nullcontext():
            net(torch.randn(8, 16)).square().mean().backward()
    opt.step()
    opt.zero_grad()
    with torch.no_grad():
        net(torch.randn(8, 16))
print('exchanges', exchanges)
"""


def counted(
    folder: Path, name: str, passes: list[int], *, own: bool = False, switch: bool = True
) -> tuple[Measured, int]:
    command = [*written(folder, SCRIPT), "own" if own else "plain", ",".join(map(str, passes))]
    switches = (("no_sync", "on"),) if switch else ()
    done = run_once(
        command, folder / name, arm=name, switches=switches, enough=lambda: False, most_s=None, window="off"
    )
    assert done.ended.code == 0, done.tail()
    return done.measured, int(next(line for line in done.tail() if line.startswith("exchanges")).split()[1])


def test_after_two_steps_alike_one_pass_of_each_exchanges_and_the_training_is_the_same(tmp_path: Path) -> None:
    ours, exchanges = counted(tmp_path, "ours", [4] * 10)
    own, least = counted(tmp_path, "own", [4] * 10, own=True, switch=False)
    assert (exchanges, least) == (4 + 4 + 8, 10)
    assert ours.losses == pytest.approx(own.losses, rel=1e-6) and len(ours.losses) == 40
    assert ours.acted == [("no_sync", "gradients exchanged in 1 of 4 backward passes a step")]


@pytest.mark.parametrize(
    ("passes", "own", "exchanges", "why"),
    [
        ([3, 3, 3, 2, 3, 3], False, 3 + 3 + 1 + 0 + 3 + 3, "the number of backward passes a step changes"),
        pytest.param([1] * 5, False, 5, "one backward pass a step, which has to exchange", marks=pytest.mark.slow),
        pytest.param([3] * 5, True, 5, "the program uses no_sync() itself", marks=pytest.mark.slow),
    ],
)
def test_where_it_cannot_know_the_last_pass_it_ends_and_says_why(
    tmp_path: Path, passes: list[int], own: bool, exchanges: int, why: str
) -> None:
    measured, found = counted(tmp_path, "ours", passes, own=own)
    assert found == exchanges
    assert ("no_sync", why) in measured.refused


@pytest.mark.slow
@pytest.mark.alone
def test_on_two_ranks_it_gains_and_the_losses_stay(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[1] / "ranks" / "scripts" / "ddp_train.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    found = tried(
        tmp_path, ["no_sync"], [*launcher, *"--model table --batch 32 --accum 4 --steps 400".split()], steps=40
    )
    arm = found.arm("no_sync=on")
    assert arm["outcome"] == "faster" and arm["gain"]["value"] > 1.3, found.page
    assert arm["truth"]["ok"] is True, found.page

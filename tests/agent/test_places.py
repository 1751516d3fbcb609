"""What a sample is called: judging the model is told from training it, whatever the names say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from underfed.recording import records as r

LOOP = """
import sys
body = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256))
opt = torch.optim.SGD(body.parameters(), 0.01)
x = torch.randn(512, 256)
def work(): return body(x).square().mean()
def evaluate_loss(): return work()            # trains
@torch.no_grad()
def update_average():                         # no gradient, and judges nothing
    for _ in range(20): work()
@torch.no_grad()
def evaluate():                               # judges
    for _ in range(20): work()
class Trainer:
    def run_validation(self):                 # judges, by what its body calls
        body.eval()
        for _ in range(20): work()
        body.train()
def kind(name): return {'evaluate': evaluate, 'run_validation': Trainer().run_validation,
                        'update_average': update_average, 'evaluate_loss': lambda: None}[name]
beside = kind(sys.argv[1])
for at in range(100):
    if at % 2: beside()
    opt.zero_grad()
    evaluate_loss().backward()
    opt.step()
"""


def kinds(watched: Any) -> Counter[str]:
    """Time by class over all samples, in ns."""
    found: Counter[str] = Counter()
    for line in watched.main.of(r.Stacks):
        for _, kind, _, _, ns, _ in line.rows:
            found[kind] += ns
    return found


@pytest.mark.parametrize(
    ("name", "judges"),
    [
        pytest.param("evaluate", True, marks=pytest.mark.slow),
        ("run_validation", True),
        pytest.param("update_average", False, marks=pytest.mark.slow),
        ("evaluate_loss", False),
    ],
)
def test_judging_is_told_from_training(run: Callable[..., Any], name: str, judges: bool) -> None:
    watched = run(LOOP, name)
    assert watched.code == 0, watched.err
    found = kinds(watched)
    assert found["forward"] > 0
    # Twenty passes every other step, against one forward and backward each step.
    assert (found["eval"] > found["forward"]) is judges
    assert (found["eval"] == 0) is not judges

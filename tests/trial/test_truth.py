"""Whether numbers stayed true: by trainings in NumPy whose rounding is known, and by a script in float64 itself."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trial_help import tried, written

from underfed.diagnosis import Numerics
from underfed.trial import once
from underfed.trial.measured import Measured
from underfed.trial.once import run_once
from underfed.trial.truth import FEWEST_FOR_DRIFT, LATER_STEPS, judge, needs_reference, needs_seeds, repeats, strays


def descent(kind: Any, *, backwards: bool = False, rate: float = 0.05, seed: int = 0) -> Measured:
    """Losses of least squares by gradient descent in one number format, its sums in one of two orders."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(200, 8)).astype(np.float32).astype(kind)
    y = (x.astype(np.float64) @ np.arange(8) + rng.normal(size=200)).astype(np.float32).astype(kind)
    order = slice(None, None, -1) if backwards else slice(None)
    w = np.zeros(8, dtype=kind)

    def total(values: Any) -> Any:
        return np.add.accumulate(values[order], axis=0, dtype=kind)[-1]

    losses = []
    for _ in range(60):
        error = (x * w).sum(axis=1, dtype=kind) - y
        losses.append(float(total(error * error) / kind(200)))
        w = (w - kind(rate) * total(error[:, None] * x) / kind(200)).astype(kind)
    return Measured(losses=losses, batches=["1", "2"])


BASE, OTHER_ORDER, HALF = descent(np.float32), descent(np.float32, backwards=True), descent(np.float16)
EXACT = descent(np.float64)


def test_another_order_of_adding_lies_as_far_from_float64_as_the_baseline() -> None:
    assert needs_reference("reorder", [BASE, BASE], [OTHER_ORDER, OTHER_ORDER])
    truth = judge("reorder", [BASE, BASE], [OTHER_ORDER], seeded=True, reference=EXACT)
    assert (truth.ok, truth.numbers) == (True, "within-tolerance") and "float64" in truth.text
    assert truth.baseline_off is not None and truth.changed_off is not None
    exact, mine = np.array(EXACT.losses[:LATER_STEPS]), np.array(BASE.losses[:LATER_STEPS])
    assert truth.baseline_off == pytest.approx(np.linalg.norm(exact - mine) / np.linalg.norm(exact), rel=1e-9)
    assert 0 < truth.changed_off < 4 * truth.baseline_off


def test_a_coarser_format_is_found_where_the_tolerance_would_let_it_pass() -> None:
    coarse = Measured(losses=[round(v, 4) * (1 + 5e-6) for v in BASE.losses], batches=BASE.batches)
    alone = judge("reorder", [BASE, BASE], [coarse], seeded=True)
    held = judge("reorder", [BASE, BASE], [coarse], seeded=True, reference=EXACT)
    assert (alone.ok, held.ok, held.numbers) == (True, False, "differ"), (alone, held)
    assert judge("reorder", [BASE, BASE], [HALF], seeded=True, reference=EXACT).ok is False


@pytest.mark.parametrize(
    "reference",
    [None, Measured(), descent(np.float64, seed=1), Measured(losses=[*EXACT.losses[:10], float("nan")] * 6)],
)
def test_what_is_no_reference_is_not_used(reference: Measured | None) -> None:
    """None was made, it ended early, drew other numbers, or is broken: the tolerance decides."""
    truth = judge("reorder", [BASE, BASE], [OTHER_ORDER], seeded=True, reference=reference)
    assert truth.baseline_off is None and "allowed for sums in another order" in truth.text and truth.ok is True


@pytest.mark.parametrize("numerics", ["exact", "precision", "semantic"])
def test_only_another_order_of_adding_asks_for_one(numerics: Numerics) -> None:
    assert not needs_reference(numerics, [BASE, BASE], [OTHER_ORDER])


def test_where_nothing_is_gained_by_one_none_is_made() -> None:
    assert not needs_reference("reorder", [BASE, BASE], [BASE]), "equal to the bit"
    assert not needs_reference("reorder", [BASE, OTHER_ORDER], [HALF]), "the baseline does not repeat itself"
    assert not needs_reference("reorder", [BASE], [Measured(losses=HALF.losses, batches=["1", "3"])]), "other batches"
    assert not needs_reference("reorder", [], [BASE]) and not needs_reference("reorder", [BASE], [])


def test_rounding_that_differs_from_run_to_run_is_told_from_another_start() -> None:
    assert repeats([BASE, BASE]) and not repeats([BASE, OTHER_ORDER]) and not repeats([])
    assert strays([BASE, OTHER_ORDER]), "the same training, added in another order each time"
    assert not strays([BASE, BASE]) and not strays([BASE]) and not strays([BASE, Measured()])
    assert not strays([BASE, descent(np.float32, seed=1)]), "other draws from the first loss on: no seed"


@pytest.mark.parametrize(
    ("numerics", "changed", "ok", "numbers"),
    [
        ("exact", BASE, True, "same"),
        ("exact", OTHER_ORDER, False, "differ"),
        ("precision", HALF, True, "within-noise"),
        ("precision", descent(np.float32, rate=0.01), False, "differ"),
        ("semantic", BASE, None, "other-training"),
        ("reorder", descent(np.float32, rate=0.01), False, "differ"),
        ("exact", Measured(), None, "not-comparable"),
    ],
)
def test_each_class_is_held_to_what_it_promises(
    numerics: Numerics, changed: Measured, ok: bool | None, numbers: str
) -> None:
    truth = judge(numerics, [BASE, BASE], [changed], seeded=True)
    assert (truth.ok, truth.numbers) == (ok, numbers), truth
    assert len(BASE.losses) > FEWEST_FOR_DRIFT


def norms(*values: float, run: Measured = BASE) -> Measured:
    return replace(run, gradients=[None, *values])


@pytest.mark.parametrize(
    ("numerics", "changed", "ok"),
    [
        ("exact", norms(2.0, 1.0), True),
        ("exact", norms(2.0, 1.0 + 1e-15), False),
        ("reorder", norms(2.0, 1.0 + 1e-6), True),
        ("reorder", norms(2.0, 1.1), False),
        ("precision", norms(2.05, 1.5, run=HALF), True),
        ("precision", norms(0.0, 1.0, run=HALF), False),  # below the smallest number of the format
        ("precision", norms(float("inf"), 1.0, run=HALF), False),
    ],
)
def test_gradients_are_held_to_the_class_where_losses_hide_what_happened(
    numerics: Numerics, changed: Measured, ok: bool
) -> None:
    base = norms(2.0, 1.0)
    truth = judge(numerics, [base, base], [changed], seeded=True)
    assert truth.ok is ok, truth
    assert truth.gradients == 2
    assert ok or "gradients" in truth.text


def test_gradients_further_from_float64_than_the_baselines_are_found() -> None:
    base, exact = norms(2.0, 1.0 + 1e-7), norms(2.0, 1.0, run=EXACT)
    fine, off = norms(2.0, 1.0 - 2e-7, run=OTHER_ORDER), norms(2.0, 1.0 + 5e-6, run=OTHER_ORDER)
    assert judge("reorder", [base, base], [fine], seeded=True, reference=exact).ok is True
    assert judge("reorder", [base, base], [off], seeded=True, reference=exact).ok is False


OTHER_SEEDS = [replace(descent(np.float32, seed=seed), acted=[("reseed", "other seeds")]) for seed in (1, 2)]


@pytest.mark.parametrize(("rate", "ok"), [(0.048, True), (0.02, False)])
def test_a_drift_is_held_against_what_other_seeds_differ_by(rate: float, ok: bool) -> None:
    drifted = descent(np.float32, rate=rate)
    drifted = replace(drifted, losses=[BASE.losses[0], *drifted.losses[1:]])
    assert needs_seeds("precision", [BASE, BASE], [drifted]) and not needs_seeds("reorder", [BASE, BASE], [drifted])
    alone = judge("precision", [BASE, BASE], [drifted], seeded=True)
    held = judge("precision", [BASE, BASE], [drifted], seeded=True, seeds=OTHER_SEEDS)
    assert (alone.ok, held.ok) == (False, ok), (alone, held)
    late = [np.mean(run.losses[30:]) for run in (BASE, *OTHER_SEEDS)]
    assert held.seeds_differ_by == pytest.approx(max(late) - min(late))


def test_seeds_that_change_nothing_are_no_measure() -> None:
    drifted = descent(np.float32, rate=0.048)
    same = replace(BASE, acted=[("reseed", "other seeds")])
    unchanged = judge(
        "precision", [BASE, BASE], [drifted], seeded=True, seeds=[same, replace(OTHER_SEEDS[0], acted=[])]
    )
    assert unchanged.ok is False and unchanged.seeds_differ_by is None


NETS = """
import sys, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.rnn = nn.LSTM(32, 8, batch_first=True)
        self.register_buffer('scale', torch.full((8,), 0.5))
    def forward(self, x):
        y, _ = self.rnn(self.body(x).unsqueeze(1))
        return y.squeeze(1) * self.scale + torch.zeros(8, dtype=self.kind)
kind = torch.float64 if sys.argv[1:] == ['own'] else torch.float32
net = Net()
Net.kind = kind
x, y = torch.randn(60, 32, 16), torch.randn(60, 32, 8)
average = {name: value.clone() for name, value in net.state_dict().items()}
if kind == torch.float64:
    net, x, y = net.double(), x.double(), y.double()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
for at in range(60):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x[at]), y[at])
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            average[name].mul_(0.9).add_(value, alpha=0.1)
"""


@pytest.mark.torch
def test_the_reference_is_what_the_script_gives_when_it_trains_in_float64_itself(tmp_path: Path) -> None:
    def losses(name: str, *words: str, switches: tuple[tuple[str, str | None], ...] = ()) -> list[float]:
        command = [*written(tmp_path, NETS), *words]
        done = run_once(
            command, tmp_path / name, arm=name, switches=switches, enough=lambda: False, most_s=None, window="off"
        )
        assert done.ended.code == 0, done.tail()
        assert len(done.measured.losses) == 60
        return done.measured.losses

    own, ours = losses("own", "own"), losses("ours", switches=(("reference", "fp64"),))
    assert ours == own
    narrow = losses("narrow")
    assert narrow != own and narrow[0] == pytest.approx(own[0], rel=1e-6)


DRAWN = """
import random, sys
import numpy as np
import torch
from torch import nn
seed = int(sys.argv[1])
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for at in range(30):
    x = torch.randn(32, 16) + float(np.random.randn()) + random.random()
    opt.zero_grad()
    net(x).square().mean().backward()
    print("norm", float(nn.utils.clip_grad_norm_(net.parameters(), 1e9)))
    opt.step()
"""


@pytest.mark.torch
def test_other_seeds_are_other_seeds_of_the_script_and_norms_are_those_that_it_sees(tmp_path: Path) -> None:
    def run(name: str, seed: int, *switches: tuple[str, str | None]) -> tuple[Measured, list[float]]:
        command = [*written(tmp_path, DRAWN), str(seed)]
        done = run_once(
            command, tmp_path / name, arm=name, switches=switches, enough=lambda: False, most_s=None, window="off"
        )
        assert done.ended.code == 0, done.tail()
        return done.measured, [float(line.split()[1]) for line in done.tail(100) if line.startswith("norm")]

    ours, _ = run("ours", 5, ("reseed", "1"))
    own, printed = run("own", 5 + 1_000_003)
    assert ours.losses == own.losses and len(own.losses) == 30
    assert ours.gradients == own.gradients and len(own.gradients) == 10
    assert [value for value in own.gradients if value is not None] == pytest.approx(printed[:10], rel=1e-5)


@pytest.mark.torch
@pytest.mark.parametrize(("own", "says"), [("2", "was 2"), pytest.param(None, "was not set", marks=pytest.mark.slow)])
def test_threads_are_set_before_torch_starts_and_said_to_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None, says: str
) -> None:
    monkeypatch.setattr(once, "inherited_environment", lambda: environment)
    environment = {name: value for name, value in os.environb.items() if name != b"OMP_NUM_THREADS"}
    if own is not None:
        environment[b"OMP_NUM_THREADS"] = own.encode()
    words = "import os, torch; print(os.environ['OMP_NUM_THREADS'], torch.get_num_threads())"
    done = run_once(
        [sys.executable, "-c", words], tmp_path / "a", arm="a", switches=(("threads", "3"),), enough=bool, most_s=None
    )
    assert done.tail() == ["3 3"]
    (notes,) = (tmp_path / "a").glob("trial-*.jsonl")
    assert f"OMP_NUM_THREADS=3 ({says})" in notes.read_text()


CONVOLUTIONS = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Tanh(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(8 * 64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(8, 8, 12, 12)
for _ in range(150):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.torch
def test_a_change_of_order_is_held_against_float64(tmp_path: Path) -> None:
    found = tried(tmp_path, ["channels_last"], written(tmp_path, CONVOLUTIONS), timed=False)
    truth = found.arm("channels_last=on")["truth"]
    assert truth["ok"] is True and truth["numbers"] == "within-tolerance", found.page
    assert truth["baseline_off"] < 1e-5, "rounding alone"
    assert truth["changed_off"] <= max(4 * truth["baseline_off"], 1e-7) and "float64" in found.page
    assert "in float64" in found.said


STRAYING = """
import sys, time, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(32, 64)
for at in range(400):
    optimizer.zero_grad(set_to_none=False)
    fresh = at > 2 and any(p.grad is None for p in model.parameters())
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        if not torch.are_deterministic_algorithms_enabled():  # as atomic additions of a GPU do
            model.weight.mul_(1 + 1e-6 * (time.time_ns() % 7))
        if fresh and SPOILS:
            model.bias.add_(0.01)
    time.sleep(0.01)
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("spoils", [False, True])
def test_a_program_whose_rounding_strays_is_compared_in_deterministic_mode(tmp_path: Path, spoils: bool) -> None:
    found = tried(tmp_path, ["set_to_none"], written(tmp_path, STRAYING.replace("SPOILS", str(spoils))), timed=False)
    truth = found.arm("set_to_none=on")["truth"]
    assert (truth["ok"], truth["numbers"]) == ((False, "differ") if spoils else (True, "same")), found.page
    assert truth["text"].startswith("in deterministic mode, ") and "deterministic mode" in found.said

"""`underfed try` on scripts whose truth is known: what gains, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from trial_help import Tried, script, tried

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    """A loader that sleeps 16 ms a batch beside a loop of 4 ms: with four workers the loop alone is left."""
    folder = tmp_path_factory.mktemp("fed")
    found = tried(folder, ["T4=4"], script(folder), pairs=3)
    assert not (folder / "finished").exists(), "a run is ended at a step boundary, not at its own end"
    return found


def test_a_known_gain_is_measured_and_its_numbers_are_the_same(fed: Tried) -> None:
    arm = fed.arm("T4=4")
    assert fed.code == 0 and arm["outcome"] == "faster", fed.page
    alone = fed.trial["baseline_step_ms"] - 16
    assert 0 < alone
    assert arm["gain"]["low"] <= arm["gain"]["value"] <= arm["gain"]["high"]
    assert 1.5 < arm["gain"]["value"] <= fed.trial["baseline_step_ms"] / 4
    assert arm["truth"]["ok"] is True and arm["truth"]["numbers"] == "same" and arm["truth"]["losses"] >= 60
    assert arm["truth"]["batches"] == "same"
    assert "num_workers 0 -> 4" in arm["acted"]
    assert "4.00x" not in fed.page and f"{arm['gain']['value']:.2f}x" in fed.page


def test_arms_take_turns_and_every_run_is_kept(fed: Tried) -> None:
    turns = ["baseline", "T4=4", "T4=4", "baseline", "baseline", "T4=4"]
    assert [run["arm"] for run in fed.trial["runs"]] == turns
    assert all(run["steps"] >= 60 and run["ended_early"] for run in fed.trial["runs"])
    folder = Path(fed.trial["folder"])
    assert all((folder / run["folder"] / "recording.json").exists() for run in fed.trial["runs"])


def test_what_changes_nothing_is_not_a_gain(tmp_path: Path) -> None:
    """Gradients that are dropped instead of zeroed, in a loop that sleeps."""
    found = tried(tmp_path, ["set_to_none"], script(tmp_path, "optimizer.zero_grad(set_to_none=False)"))
    arm = found.arm("set_to_none=on")
    assert arm["outcome"] == "no-change" and "no measurable change" in found.page, found.page
    assert arm["gain"]["low"] <= 1 <= arm["gain"]["high"] and arm["truth"]["ok"] is True

"""What a search says of runs whose step times are given: no confidence where there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from underfed.playbook.loader_model import Feed
from underfed.recording.read import Recording
from underfed.report.page import plain
from underfed.trial.measured import Measured
from underfed.trial.once import Done
from underfed.trial.process import Ended
from underfed.tune.conclude import conclude
from underfed.tune.memory import Watch
from underfed.tune.model import Model, Room, Setting
from underfed.tune.records import Tuning
from underfed.tune.search import Proposal, Seen, State
from underfed.tune.session import Plan, Search, Tried
from underfed.tune.show import tuning_lines

BASE, MORE = Setting(workers=0), Setting(workers=4)


def runs(folder: Path, name: str, steps: list[float], loss: float = 1.0) -> list[Done]:
    acted = [("workers", "num_workers 0 -> 4")] if name != "base" else []
    return [
        Done(
            arm=name,
            folder=folder,
            ended=Ended(code=75, asked=True),
            measured=Measured(walls=[step] * 60, blocks=[step] * 12, acted=acted, losses=[loss] * 60),
        )
        for step in steps
    ]


def searched(folder: Path, base: list[float], more: list[float], *, in_turns: bool = True) -> Search:
    """A search whose two settings took these steps, in ms."""
    one, two = runs(folder, "base", base), runs(folder, "more", more)
    proposal = Proposal(setting=MORE, predicted=5.0, why="expected to feed the loop best")
    model = Model(rest=4, wall=20, cpu=1, fetches=1, cpus=4, on_gpu=False, base=BASE, base_ms=base[0])
    seen = [Seen(setting=BASE, step=base[0]), Seen(setting=MORE, step=min(more))]
    return Search(
        plan=Plan(command=["python", "train.py"]),
        folder=folder,
        say=str,
        tried=[
            Tried(setting=BASE, runs=one, confirmed=one if in_turns else []),
            Tried(setting=MORE, proposal=proposal, runs=two, confirmed=two if in_turns else []),
        ],
        order=[*one, *two],
        state=State(model=model, room=Room(), seen=seen),
        complete=in_turns,
    )


def shown(search: Search) -> tuple[Tuning, str]:
    found = conclude(search)
    return found, " ".join(plain(tuning_lines(found)).split())


@pytest.mark.parametrize(
    ("base", "more", "chosen", "says"),
    [
        ([24.0, 24.1], [5.0, 5.1], "better", "num_workers=4"),
        ([24.0, 24.1], [23.0, 24.9], "keep", "a difference of less than"),
        ([24.0, 90.0], [5.0, 80.0], "keep", "too disturbed to tell"),
    ],
)
def test_runs_too_disturbed_to_tell_choose_nothing_and_say_so(
    tmp_path: Path, base: list[float], more: list[float], chosen: str, says: str
) -> None:
    found, page = shown(searched(tmp_path, base, more))
    assert found.chosen == chosen and says in page, page
    assert ("of less than" in page) == (says == "a difference of less than")


def test_a_choice_that_was_not_run_in_turns_is_said_to_be_so(tmp_path: Path) -> None:
    found, page = shown(searched(tmp_path, [24.0], [5.0], in_turns=False))
    assert found.chosen == "better" and "was not run in turns" in page and "larger --budget" in page
    assert "was not run in turns" not in shown(searched(tmp_path, [24.0, 24.1], [5.0, 5.1]))[1]


@pytest.mark.parametrize("complete", [True, False])
def test_a_script_that_was_run_alone_is_not_called_the_fastest(tmp_path: Path, complete: bool) -> None:
    search = searched(tmp_path, [24.0], [5.0], in_turns=False)
    search.tried.pop()
    assert search.state is not None
    search.state.seen = [Seen(setting=BASE, step=24.0, feed=cast(Feed, SimpleNamespace(wait=20.0, border=0.0)))]
    search.complete = complete
    found, _ = shown(search)
    says = "no other setting promises enough" if complete else "no other setting was run"
    assert found.chosen == "keep" and says in found.reason


@pytest.mark.parametrize(("later", "chosen"), [(1.0, "better"), (3.0, "keep")])
def test_losses_that_differ_in_the_last_runs_rule_the_choice_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, chosen: str
) -> None:
    search = searched(tmp_path, [24.0], [5.0], in_turns=False)
    assert search.state is not None

    def one(name: str, switches: tuple[tuple[str, str], ...], window: str = "off") -> tuple[Done, Watch, Recording]:
        (done,) = runs(tmp_path, name if switches else "base", [5.0 if switches else 24.0], later if switches else 1.0)
        search.order.append(done)
        return done, Watch(folder=tmp_path, limit=None, enough=bool), Recording(tmp_path, {}, [], [], [])

    monkeypatch.setattr(search, "_one", one)
    monkeypatch.setattr("underfed.tune.session.propose", lambda _: None)
    monkeypatch.setattr(search, "_first", lambda: None)
    search.run()
    found, page = shown(search)
    assert search.complete and found.chosen == chosen, page
    assert ("NOT TRUE" in page) == (chosen == "keep")


def test_a_slow_start_is_waited_for_and_a_run_that_hangs_is_not(tmp_path: Path) -> None:
    search = searched(tmp_path, [24.0], [5.0])
    search.plan.budget_s, ran = 600.0, search.order
    search.order = []
    assert search._most() == 600
    search.order, search._longest = ran, 20.0
    assert search._most() == 120
    search._longest = 150.0
    assert search._most() == 300
    search.begun -= 500
    assert 90 < search._most() <= 100

"""What a search says of runs whose step times are given: no confidence where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.report.page import plain
from underfed.trial.measured import Measured
from underfed.trial.once import Done
from underfed.trial.process import Ended
from underfed.tune.conclude import conclude
from underfed.tune.model import Model, Room, Setting
from underfed.tune.records import Tuning
from underfed.tune.search import Proposal, Seen, State
from underfed.tune.session import Plan, Search, Tried
from underfed.tune.show import tuning_lines

BASE, MORE = Setting(workers=0), Setting(workers=4)


def runs(folder: Path, name: str, steps: list[float]) -> list[Done]:
    return [
        Done(
            arm=name,
            folder=folder,
            ended=Ended(code=75, asked=True),
            measured=Measured(
                walls=[step] * 60, blocks=[step] * 12, acted=[("workers", "num_workers 0 -> 4")] * (name != "base")
            ),
        )
        for step in steps
    ]


def concluded(folder: Path, base: list[float], more: list[float]) -> tuple[Tuning, str]:
    """A search whose two settings took these steps in turns, in ms, and its page."""
    one, two = runs(folder, "base", base), runs(folder, "more", more)
    proposal = Proposal(setting=MORE, predicted=5.0, why="expected to feed the loop best")
    model = Model(rest=4, wall=20, cpu=1, fetches=1, cpus=4, on_gpu=False, base=BASE, base_ms=base[0])
    seen = [Seen(setting=BASE, step=base[0]), Seen(setting=MORE, step=min(more))]
    search = Search(
        plan=Plan(command=["python", "train.py"]),
        folder=folder,
        say=str,
        tried=[
            Tried(setting=BASE, runs=one, confirmed=one),
            Tried(setting=MORE, proposal=proposal, runs=two, confirmed=two),
        ],
        state=State(model=model, room=Room(), seen=seen),
        complete=True,
    )
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
    found, page = concluded(tmp_path, base, more)
    assert found.chosen == chosen and says in page, page
    assert ("of less than" in page) == (says == "a difference of less than")

"""What a trial says of runs whose step times are given: no confidence where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.cli import main
from underfed.report.page import plain
from underfed.trial.conclude import conclude
from underfed.trial.knobs import parse
from underfed.trial.measured import Measured
from underfed.trial.once import Done
from underfed.trial.process import Ended
from underfed.trial.records import Trial
from underfed.trial.session import BASE, Plan, Session
from underfed.trial.show import trial_lines
from underfed.tune.records import Point, Tuning
from underfed.tune.show import tuning_lines


def concluded(folder: Path, base: list[float], changed: list[float]) -> Trial:
    """A trial of runs with these steps, in ms: each of them even within itself."""
    plan = Plan(command=["python", "train.py"], changes=parse(["T4=4"]), pairs=len(base))
    session = Session(plan=plan, folder=folder, say=str, arms=list(plan.changes), complete=True)
    for pair in zip(base, changed, strict=True):
        for arm, step in zip((BASE, "T4=4"), pair, strict=True):
            seen = Measured(walls=[step] * 60, blocks=[step] * 12, acted=[("workers", "num_workers 0 -> 4")])
            session.runs.append(Done(arm=arm, folder=folder, ended=Ended(code=75, asked=True), measured=seen))
    return conclude(session, None)


@pytest.mark.parametrize(
    ("base", "changed", "outcome"),
    [
        ([10.0, 10.1, 10.0], [10.1, 10.0, 10.0], "no-change"),
        ([10.0, 40.0, 10.0], [12.0, 10.0, 50.0], "not-measured"),
        ([10.0, 30.0], [30.0, 10.0], "not-measured"),
        ([10.0, 10.1, 10.0], [5.0, 5.1, 5.0], "faster"),
    ],
)
def test_runs_too_disturbed_to_tell_are_not_called_unchanged(
    tmp_path: Path, base: list[float], changed: list[float], outcome: str
) -> None:
    trial = concluded(tmp_path, base, changed)
    (arm,) = trial.arms
    page = " ".join(plain(trial_lines(trial)).split())
    assert arm.outcome == outcome
    assert ("too disturbed to tell" in page) == (outcome == "not-measured")
    assert ("would not have shown" in page) == (outcome != "faster")
    assert (arm.gain is None) == (outcome == "not-measured")
    assert ("a difference of less than" in page) == (outcome == "no-change")


def test_what_a_program_said_cannot_steer_the_terminal(tmp_path: Path) -> None:
    plan = Plan(command=["python", "train.py"], changes=parse(["T4=4"]))
    session = Session(plan=plan, folder=tmp_path, say=str, arms=list(plan.changes))
    (tmp_path / "output.txt").write_bytes(b"\x1b[2Jboom \x07\xe2\x82\xac \x9b31m\rover\n")
    seen = Measured(acted=[("optimizer", "Adam\x1b[2J: fused=True")])
    for arm, code in ((BASE, 0), ("T4=4", 1)):
        session.runs.append(Done(arm=arm, folder=tmp_path, ended=Ended(code=code, asked=False), measured=seen))
    trial = conclude(session, None)
    point = Point(name="workers=4", switches=(), outcome="crashed", text="", output=trial.arms[0].output)
    tuning = Tuning(
        folder="runs", budget_s=1, spent_s=1, base_ms=1, points=(point,), chosen="keep", reason="a", device="x\x1b[2J"
    )
    for page in (plain(trial_lines(trial)), plain(tuning_lines(tuning))):
        assert "boom" in page and page.isascii() and page.replace("\n", "").isprintable(), page


@pytest.mark.parametrize("command", ["try", "tune"])
@pytest.mark.parametrize(("name", "says"), [("taken", "is a folder"), ("gone/t.json", "does not exist")])
def test_a_json_that_cannot_be_a_file_is_said_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, name: str, says: str
) -> None:
    (tmp_path / "taken").mkdir()
    words = [command, *(["T4=4"] if command == "try" else []), "--json", str(tmp_path / name)]
    assert main([*words, "--out", str(tmp_path / "runs"), "--", "python", "train.py"]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 1 and not (tmp_path / "runs").exists()


def test_a_rule_whose_switch_does_nothing_here_shows_its_edit(tmp_path: Path) -> None:
    """Attention written by hand calls nothing that could be switched."""
    (change,) = parse(["T14"])
    session = Session(
        plan=Plan(command=["x"], changes=[change]), folder=tmp_path, say=str, arms=[change], complete=True
    )
    for arm in (BASE, "T14"):
        seen = Measured(walls=[10.0] * 60, blocks=[10.0] * 12)
        session.runs.append(Done(arm=arm, folder=tmp_path, ended=Ended(code=75, asked=True), measured=seen))
    (arm,) = conclude(session, None).arms
    assert arm.outcome == "not-applied" and arm.edit is not None and "scaled_dot_product_attention" in arm.edit
    assert concluded(tmp_path, [10.0, 10.1], [5.0, 5.1]).arms[0].edit is None, "nothing to edit where it acted"


def test_losses_of_deterministic_mode_count_only_where_the_baseline_repeats_itself_there(tmp_path: Path) -> None:
    def done(arm: str, losses: list[float]) -> Done:
        seen = Measured(losses=losses, acted=[("a", "b")])
        return Done(arm=arm, folder=tmp_path, ended=Ended(code=75, asked=True), measured=seen)

    (change,) = parse(["set_to_none"])
    session = Session(plan=Plan(command=["x"], changes=[change]), folder=tmp_path, say=str, arms=[change])
    session.runs = [done(BASE, [1.0, 2.0]), done(change.name, [1.0, 2.1])]
    assert session.compared(change)[0][0] is session.runs[0].measured and not session.deterministic(change)
    session.repeated = [done(BASE, [3.0]), done(change.name, [3.0])]
    assert not session.deterministic(change), "one run does not show that it repeats itself"
    session.repeated.append(done(BASE, [3.1]))
    assert not session.deterministic(change), "it does not"
    session.repeated[-1] = done(BASE, [3.0])
    assert session.deterministic(change) and session.compared(change)[1] == [session.repeated[1].measured]

"""`underfed compare` on recordings, trials and traces whose truth is known, and on what cannot be compared."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compare_help import compared, recording, steps

H200 = Path(__file__).parents[1] / "fixtures" / "h200"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_what_changed_is_named_with_its_noise(tmp_path: Path, rng: np.random.Generator) -> None:
    """A step of 10 ms, half of it waiting; then the wait is gone."""
    a = recording(tmp_path / "a", steps(rng, 300, 10.0), data=0.5)
    b = recording(tmp_path / "b", steps(rng, 300, 5.0))
    found = compared(a, b, "--json").found
    assert found["work"] == "same" and found["outcome"] == "faster"
    assert found["gain"]["low"] < 2.0 < found["gain"]["high"] and found["gain"]["high"] < 2.2
    assert (found["a"]["bound"], found["b"]["bound"]) == ("data", "compute")
    first = found["parts"][0]
    assert first["name"] == "wait: data" and first["change"] == pytest.approx(-5.0, rel=0.05)
    assert sum(part["change"] for part in found["parts"]) == pytest.approx(-5.0, rel=0.05)
    page = compared(a, b)
    assert page.code == 0 and "2.0" in page.page and "shapes of a batch" in page.page
    assert page.page.index("The same work") < page.page.index("as fast as A")


def test_a_run_against_itself_is_no_difference(tmp_path: Path, rng: np.random.Generator) -> None:
    a = recording(tmp_path / "a", steps(rng, 300, 10.0))
    found = compared(a, a, "--json").found
    assert found["outcome"] == "no-change" and found["gain"]["value"] == 1.0 and found["detectable"] > 1.01
    assert found["noise_measured"] is False and any("one run a side" in limit for limit in found["limits"])


def test_unlike_runs_say_so_first_and_get_no_ruling(tmp_path: Path, rng: np.random.Generator) -> None:
    a = recording(tmp_path / "a", steps(rng, 200, 10.0))
    b = recording(tmp_path / "b", steps(rng, 200, 20.0), batch=64, torch="2.9.1")
    page = compared(a, b)
    assert page.page.startswith("NOT THE SAME WORK") and "batch: 32 in A, 64 in B" in page.page
    assert "torch: 2.8.0 in A, 2.9.1 in B" in page.page
    ruled = compared(a, b, "--fail-above", "5%")
    assert ruled.code == 3 and "not the same work" in ruled.page and len(ruled.page.splitlines()) == 1


@pytest.mark.parametrize(("factor", "code", "word"), [(1.0, 0, "pass"), (1.3, 1, "fail"), (0.7, 0, "pass")])
def test_ci_gets_one_line_and_a_code(
    tmp_path: Path, rng: np.random.Generator, factor: float, code: int, word: str
) -> None:
    for name, ms in (("a", 10.0), ("b", 10.0 * factor)):
        for number in range(3):
            recording(tmp_path / name / str(number), steps(rng, 150, ms))
    ruled = compared(tmp_path / "a", tmp_path / "b", "--fail-above", "5%")
    assert ruled.code == code, ruled.page
    assert len(ruled.page.splitlines()) == 1 and ruled.page.startswith(word)
    found = compared(tmp_path / "a", tmp_path / "b", "--fail-above", "5%", "--json")
    assert found.code == code and found.found["ruling"] == word and found.found["noise_measured"] is True
    assert found.found["a"]["runs"] == 3 and found.found["limit"] == 0.05


def test_noise_wider_than_the_limit_decides_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    a = recording(tmp_path / "a", steps(rng, 60, 10.0, noise=0.4, carry=0.8))
    b = recording(tmp_path / "b", steps(rng, 60, 10.2, noise=0.4, carry=0.8))
    ruled = compared(a, b, "--fail-above", "2%")
    assert ruled.code == 3 and ruled.page.startswith("undecided") and len(ruled.page.splitlines()) == 1


def test_runs_too_disturbed_to_tell_are_not_called_alike(tmp_path: Path, rng: np.random.Generator) -> None:
    for name, levels in (("a", (10.0, 40.0)), ("b", (45.0, 10.0))):
        for number, ms in enumerate(levels):
            recording(tmp_path / name / str(number), steps(rng, 60, ms))
    found = compared(tmp_path / "a", tmp_path / "b", "--json").found
    assert found["outcome"] == "undecided" and found["detectable"] > 10, found["text"]
    page = compared(tmp_path / "a", tmp_path / "b").page
    assert "too disturbed to tell" in page and "of less than" not in page
    ruled = compared(tmp_path / "a", tmp_path / "b", "--fail-above", "5%")
    assert ruled.code == 3 and "too disturbed to tell" in ruled.page and len(ruled.page.splitlines()) == 1


def test_runs_of_a_few_steps_decide_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    a, b = recording(tmp_path / "a", [10.0, 10.0]), recording(tmp_path / "b", [30.0, 30.0])
    ruled = compared(a, b, "--fail-above", "5%")
    assert ruled.code == 3 and "too short" in ruled.page
    one = recording(tmp_path / "one", [10.0])
    assert compared(one, one, "--json").found["outcome"] == "undecided"


def test_a_damaged_recording_is_read_as_far_as_it_goes(tmp_path: Path, rng: np.random.Generator) -> None:
    a = recording(tmp_path / "a", steps(rng, 300, 10.0))
    b = recording(tmp_path / "b", steps(rng, 300, 10.0), damage=b'\xff\x00{"k":')
    found = compared(a, b, "--json")
    assert found.code == 0 and any("damaged" in limit for limit in found.found["limits"])


def trial(folder: Path, rng: np.random.Generator, *, recordings: bool) -> Path:
    folder.mkdir()
    runs = []
    for at, (arm, ms) in enumerate([("baseline", 10.0), ("T4=4", 5.0), ("T4=4", 5.0), ("baseline", 10.0)]):
        walls = steps(rng, 200, ms)
        if recordings:
            recording(folder / f"0{at + 1}-run", walls)
        median = float(np.median(walls))
        runs.append({"arm": arm, "folder": f"0{at + 1}-run", "code": 75, "steps": 200, "warmup_steps": 0})
        runs[-1] |= {"step_ms": median, "ended_early": True}
    runs.append({"arm": "T5", "folder": "05-run", "code": 1, "steps": 30, "warmup_steps": 0, "step_ms": 5.0})
    record = {"schema": "underfed.trial/1", "folder": "moved", "pairs": 2, "runs": runs}
    (folder / "trial.json").write_text(json.dumps(record))
    return folder


@pytest.mark.parametrize("recordings", [True, False])
def test_arms_of_a_trial_are_sides(tmp_path: Path, rng: np.random.Generator, recordings: bool) -> None:
    folder = trial(tmp_path / "t", rng, recordings=recordings)
    found = compared(folder, f"{folder / 'trial.json'}#T4=4", "--json").found
    assert found["a"]["kind"] == found["b"]["kind"] == "trial" and found["a"]["runs"] == 2
    assert found["outcome"] == "faster" and found["gain"]["value"] == pytest.approx(2.0, rel=0.05)
    assert found["work"] == ("same" if recordings else "not-known")
    missing = compared(folder, f"{folder}#T9")
    assert missing.code == 2 and "baseline, T4=4" in missing.said
    crashed = compared(folder, f"{folder}#T5")
    assert crashed.code == 2 and "no runs of T5 that ended well" in crashed.said


def test_traces_compare_budgets_and_decide_nothing(tmp_path: Path) -> None:
    traces = sorted(H200.rglob("*trace*.json*"))
    if not traces:
        pytest.skip("no traces among the fixtures")
    found = compared(traces[0], traces[0], "--json")
    assert found.code == 0 and found.found["outcome"] == "undecided" and found.found["gain"] is None
    assert found.found["a"]["kind"] == "trace" and found.found["parts"]
    assert compared(traces[0], traces[0], "--fail-above", "5%").code == 3


@pytest.mark.parametrize(
    ("second", "more", "says"),
    [
        ("missing", (), "no such file"),
        ("empty", (), "holds no"),
        ("nosteps", (), "no steps"),
        ("foreign.json", (), "foreign.json"),
        ("bad.json", (), "trial"),
        ("a", ("--fail-above", "5"), "percentage"),
        ("a", ("--fail-above", "nan%"), "percentage"),
        ("a", ("--fail-above=-5%",), "percentage"),
        ("a#T4", (), "only a trial"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    tmp_path: Path, rng: np.random.Generator, second: str, more: tuple[str, ...], says: str
) -> None:
    a = recording(tmp_path / "a", steps(rng, 60, 10.0))
    (tmp_path / "empty").mkdir()
    recording(tmp_path / "nosteps", [])
    (tmp_path / "foreign.json").write_text('{"neither": "trace nor trial"}')
    (tmp_path / "bad.json").write_text('{"schema": "underfed.trial/1", "runs": 3}')
    found = compared(a, tmp_path / second, *more)
    assert found.code == 2 and says in found.said and len(found.said.splitlines()) == 1, found.said


def test_a_file_of_another_version_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    a = recording(tmp_path / "a", steps(rng, 60, 10.0))
    b = Path(shutil.copytree(a, tmp_path / "b"))
    (b / "recording.json").write_text('{"schema": "underfed.recording/9"}')
    found = compared(a, b)
    assert found.code == 2 and "another version" in found.said


LOOP = """
import sys, time, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(150):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    time.sleep(float(sys.argv[1]))
"""


@pytest.mark.torch
def test_real_runs_of_a_loop_that_became_slower(tmp_path: Path) -> None:
    """The sleep that was added is the change: 10 ms a step became 20."""
    (tmp_path / "loop.py").write_text(LOOP)
    for name, pause in (("a", "0.010"), ("b", "0.020")):
        line = [sys.executable, "-m", "underfed", "run", "--out", str(tmp_path / name), "--"]
        done = subprocess.run(
            [*line, sys.executable, str(tmp_path / "loop.py"), pause], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    found = compared(tmp_path / "a", tmp_path / "b", "--json", "--fail-above", "20%")
    assert found.code == 1 and found.found["outcome"] == "slower", found.page
    assert found.found["gain"]["value"] < 0.75
    assert found.found["work"] == "not-known"  # it has no loader, so no batch is known

"""`underfed demo`, in full, and where it cannot go on."""

from __future__ import annotations

import json
import os
import re
import signal
import site
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from underfed.demo.compare import Timing, advised_workers, comparison, timing_of
from underfed.diagnosis import Diagnosis, Finding, Fix, Gain, Subject, Verdict, from_json

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "underfed", "demo"]


@pytest.mark.torch
def test_the_demo_names_the_cause_and_measures_what_it_predicted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "demo"
    done = subprocess.run([*DEMO, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "underfed: data-bound" in done.stderr

    schema = json.loads((ROOT / "src/underfed/schema/diagnosis.schema.json").read_text(encoding="utf-8"))
    for name in ("before", "after"):
        jsonschema.Draft202012Validator(schema).validate(json.loads((out / f"{name}.json").read_bytes()))
    before = from_json((out / "before.json").read_bytes())
    assert (before.verdict.bound, before.verdict.cause) == ("data", "T4")
    first = next(finding for finding in before.findings if finding.helps_now)
    made_at = (out / "train.py").read_text(encoding="utf-8").splitlines()
    assert first.where is not None
    assert "DataLoader(" in made_at[int(first.where.rpartition(":")[2]) - 1]

    # The figures shown are those that the script printed, and the gain is their quotient.
    own = [float(ms) for ms in re.findall(r"^done: .* ([0-9.]+) ms a step", done.stdout, re.M)]
    shown = [float(ms) for ms in re.findall(r"^ +(?:before|after) +([0-9.]+) ms", done.stdout, re.M)]
    assert shown == own
    measured = re.search(r"measured ([0-9.]+)x", done.stdout)
    assert measured is not None
    assert abs(float(measured[1]) - own[0] / own[1]) <= 0.005
    assert own[1] < own[0]
    # Workers change who loads a sample, never its numbers.
    assert "The last loss is the same in every digit" in done.stdout
    assert f"--workers {advised_workers(before)[0]}" in done.stdout  # type: ignore[index]
    # What the agent timed is what the script timed: two clocks, one step.
    assert before.step.ms == pytest.approx(own[0], rel=0.25)


@pytest.mark.torch
def test_ctrl_c_ends_the_demo_as_it_ends_the_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    command = [*DEMO, "--out", str(tmp_path / "demo")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "step   40" not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # what a terminal does
        rest, errors = process.communicate()
    assert process.returncode == 130
    assert "What it gained" not in rest
    # The script's own traceback is its own; ours would name our files.
    assert "underfed/cli" not in errors
    assert "underfed/demo/session.py" not in errors


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    for folder in site.getsitepackages():
        for entry in Path(folder).iterdir():
            if not entry.name.startswith("torch") and not (packages / entry.name).exists():
                (packages / entry.name).symlink_to(entry)
    code = f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(packages)!r}]\nfrom underfed.cli import main\n"
    code += "sys.exit(main(['demo']))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install torch" in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["full", "file", "below a file"])
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "note.txt").write_text("mine", encoding="utf-8")
    out = {"full": tmp_path, "file": tmp_path / "note.txt", "below a file": tmp_path / "note.txt" / "demo"}[kind]
    done = subprocess.run([*DEMO, "--out", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["note.txt"]


def finding(gain: Gain | None, code: str | None = "DataLoader(..., num_workers=6)", helps_now: bool = True) -> Finding:
    fix = Fix(text="set num_workers=5 (now 0)", code=code)
    return Finding(
        rule="T4",
        name="n",
        stage="dataloader",
        bound="data",
        numerics="exact",
        summary="s",
        gain=gain,
        fix=fix,
        helps_now=helps_now,
    )


@pytest.mark.parametrize(
    ("after_ms", "expected", "judged"),
    [
        (25.0, (3.5, 4.5), "measured 4.00x, within the predicted range"),
        (40.0, (3.0, 4.5), "measured 2.50x, 16.7 % below the predicted range"),
        (21.0, (3.0, 4.0), "measured 4.76x, 19.0 % above the predicted range, within the bound"),
        (12.5, (3.0, 4.0), "measured 8.00x, which is above what was said to be possible"),
        (25.0, None, "measured 4.00x, within the bound"),
    ],
)
def test_a_prediction_that_fails_is_called_failed(
    after_ms: float, expected: tuple[float, float] | None, judged: str
) -> None:
    before, after = Timing(steps=9, ms=100.0, loss="0.5"), Timing(steps=9, ms=after_ms, loss="0.25")
    lines = comparison(before, after, finding(Gain(at_most=5.0, expected=expected)))
    assert judged in "\n".join(lines)
    assert "The last loss differs" in lines[-1]
    assert max(len(line) for line in lines) <= 77


def test_advice_comes_from_what_helps_now_alone() -> None:
    def diagnosis(*findings: Finding) -> Diagnosis:
        subject = Subject(kind="run", paths=[])
        verdict = Verdict(bound="data", confidence="high", text="")
        return Diagnosis(subject=subject, verdict=verdict, findings=list(findings))

    late = finding(None, helps_now=False)
    assert advised_workers(diagnosis(late)) is None
    assert advised_workers(diagnosis(late, finding(None))) == (6, finding(None))
    assert advised_workers(diagnosis(finding(None, code=None))) == (5, finding(None, code=None))


def test_only_a_script_that_got_to_its_end_has_a_timing() -> None:
    line = "done: 240 steps, 8.11 ms a step after the first 30, loss 0.0665258467"
    assert timing_of(f"step 40\n{line}\nbye\n") == Timing(steps=240, ms=8.11, loss="0.0665258467")
    assert timing_of("step 40  loss 1.0\n") is None

"""The command as people and machines use it: exit codes, output forms, suppression, settings."""

from __future__ import annotations

import json
from pathlib import Path

from audit_help import LOOP, run_audit


def write(folder: Path, text: str = LOOP, name: str = "train.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_exit_codes_are_0_nothing_1_findings_2_unusable(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b", "print(1)\n")
    write(tmp_path / "c", "print 'python 2'\n")
    (tmp_path / "d").mkdir()
    assert [run_audit(tmp_path / name).returncode for name in "abcde"] == [1, 0, 2, 2, 2]
    assert run_audit(tmp_path / "a", "--select", "T99").returncode == 2
    assert run_audit(tmp_path / "a", "--unsafe-fixes").returncode == 2


def test_text_has_one_line_a_finding_at_its_place(tmp_path: Path) -> None:
    write(tmp_path)
    done = run_audit("train.py", cwd=tmp_path)
    assert "train.py:17:14: X5 loss.item() makes Python wait for the GPU in every step (certain)" in done.stdout
    assert "train.py:10:9: T6 x.to(device) waits" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.stdout == run_audit("train.py", cwd=tmp_path).stdout


def test_json_and_sarif_name_the_same_places(tmp_path: Path) -> None:
    write(tmp_path)
    plain = json.loads(run_audit("train.py", "--json", cwd=tmp_path).stdout)
    sarif = json.loads(run_audit("train.py", "--format", "sarif", cwd=tmp_path).stdout)
    assert plain["schema"] == "underfed.audit/1"
    places = [(one["rule"], one["line"], one["column"]) for one in plain["findings"]]
    regions = [
        (one["ruleId"], region["startLine"], region["startColumn"])
        for one in sarif["runs"][0]["results"]
        for region in [one["locations"][0]["physicalLocation"]["region"]]
    ]
    assert places == regions
    assert places
    assert all(one["why"] and one["settle"] and one["code"] for one in plain["findings"])


def test_github_annotations_escape_what_steers_them(tmp_path: Path) -> None:
    write(tmp_path, name="a,b%.py")
    out = run_audit("a,b%.py", "--format", "github", cwd=tmp_path).stdout
    assert out.startswith("::warning file=a%2Cb%25.py,line=")


def test_names_that_steer_a_terminal_are_cleaned(tmp_path: Path) -> None:
    write(tmp_path, name="a\x1b[31m.py")
    assert "\x1b" not in run_audit(tmp_path).stdout


def test_suppression_needs_the_rule_and_unused_ones_are_told(tmp_path: Path) -> None:
    silenced = LOOP.replace("total += loss.item()", "total += loss.item()  # underfed: ignore[X5]")
    write(tmp_path, silenced)
    assert "X5" not in run_audit(tmp_path, "--select", "X5").stdout
    wrong = LOOP.replace("total += loss.item()", "total += loss.item()  # underfed: ignore[T4]")
    write(tmp_path, wrong)
    out = run_audit(tmp_path, "--select", "X5,T4").stdout
    assert "X5 loss.item()" in out
    assert "U0 unused suppression: nothing to silence for T4" in out
    in_text = LOOP.replace("total += loss.item()", 'total += loss.item(); s = "# underfed: ignore[X5]"')
    write(tmp_path, in_text)
    assert "X5 loss.item()" in run_audit(tmp_path).stdout


def test_settings_of_pyproject_are_heard_and_checked(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.underfed.audit]\nselect = ["X5"]\nsure = "certain"\n')
    assert "1 finding (1 certain)" in run_audit(tmp_path).stdout
    (tmp_path / "pyproject.toml").write_text('[tool.underfed.audit]\nexclude = ["train.py"]\n')
    assert run_audit(tmp_path).returncode == 2
    (tmp_path / "pyproject.toml").write_text("[tool.underfed.audit]\nselct = []\n")
    done = run_audit(tmp_path)
    assert (done.returncode, "no such key: selct" in done.stderr) == (2, True)


def test_possible_findings_are_counted_and_shown_on_request(tmp_path: Path) -> None:
    write(tmp_path, "import torch\ntorch.backends.cudnn.deterministic = True\n")
    done = run_audit(tmp_path)
    assert (done.returncode, "1 less sure finding not shown" in done.stdout) == (0, True)
    assert run_audit(tmp_path, "--sure", "possible").returncode == 1


def test_a_recording_ranks_what_cost_time_and_folds_the_rest(tmp_path: Path) -> None:
    write(tmp_path)
    diagnosis = {
        "schema": "underfed.diagnosis/1",
        "subject": {"kind": "run", "paths": ["train.py"]},
        "verdict": {"bound": "host", "cause": "X5", "confidence": "high", "text": "the host waits"},
        "findings": [
            {
                "rule": "X5",
                "name": "host-sync-in-step",
                "stage": "free",
                "bound": "host",
                "numerics": "exact",
                "summary": "item",
                "gain": {"at_most": 2.0, "expected": [1.2, 1.5]},
                "where": "/elsewhere/train.py:17",
                "fix": {"text": "less often"},
            }
        ],
    }
    folder = tmp_path / "rec"
    folder.mkdir()
    (folder / "diagnosis.json").write_text(json.dumps(diagnosis))
    done = run_audit(tmp_path / "train.py", "--with", folder)
    assert "X5 loss.item()" in done.stdout.splitlines()[0]
    assert "(measured: 1.2x to 1.5x)" in done.stdout.splitlines()[0]
    assert ": T6 " not in done.stdout
    assert "folded away, because the run does not gain by them now: " in done.stdout
    (folder / "diagnosis.json").write_text("{}")
    assert run_audit(tmp_path / "train.py", "--with", folder).returncode == 2

"""`underfed report` as a process: what it writes, what it refuses, and with which exit code."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pictures_help import FIXTURES

RECORDING = str(FIXTURES / "nchw.before")


def report(*words: str, hidden: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; `hidden` is a library that this process cannot import."""
    start = f"import sys; sys.modules[{hidden!r}] = None; " if hidden else "import sys; "
    start += "from underfed.cli import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run([sys.executable, "-c", start, "report", *words], capture_output=True, text=True, check=False)


def test_the_ending_of_the_file_says_what_it_is(tmp_path: Path) -> None:
    for name in ("r.html", "r.md", "r.json.gz"):
        done = report(RECORDING, "-o", str(tmp_path / name))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("### underfed: ")
    assert json.loads(gzip.decompress((tmp_path / "r.json.gz").read_bytes()))["traceEvents"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json.gz", "r.md"]


def test_markdown_goes_to_stdout() -> None:
    done = report(RECORDING, "--format", "md")
    assert done.returncode == 0
    assert done.stdout.startswith("### underfed: ")


def test_a_file_that_exists_is_replaced_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "r.md"
    path.write_text("mine")
    done = report(RECORDING, "-o", str(path))
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert path.read_text() == "mine"
    assert report(RECORDING, "-o", str(path), "--force").returncode == 0
    assert path.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize("library", ["jinja2", "vl_convert"])
def test_a_missing_extra_is_one_line(library: str, tmp_path: Path) -> None:
    done = report(RECORDING, "-o", str(tmp_path / "r.html"), hidden=library)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "underfed[report]" in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert report(RECORDING, "-o", str(tmp_path / "r.md"), hidden=library).returncode == 0
    assert report(RECORDING, "-o", str(tmp_path / "r.json"), hidden=library).returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["/nowhere/at/all", "--format", "md"],
        [RECORDING],
        [RECORDING, "-o", "/nowhere/r.html"],
        [RECORDING, "-o", "r.txt"],
        [RECORDING, "-o", "/"],
        [RECORDING, RECORDING, "--format", "md"],
        [RECORDING, "--format", "pdf"],
        [RECORDING, "--format", "md", "--step-ms", "-1"],
        [RECORDING, "--format", "md", "--step-ms", "20"],
        [RECORDING, "--format", "md", "-o", "/dev/full"],
    ],
)
def test_what_cannot_be_used_is_one_line(words: list[str]) -> None:
    done = report(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("underfed: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_diagnosis_has_no_trace_to_draw(tmp_path: Path) -> None:
    from pictures_help import recording

    from underfed.diagnosis import to_json

    path = tmp_path / "diagnosis.json"
    path.write_bytes(to_json(recording("nchw").diagnosis))
    done = report(str(path), "-o", str(tmp_path / "r.json"))
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1

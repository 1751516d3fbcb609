"""`run --live` where output goes elsewhere: it is the same to the byte. No time is judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from live_help import LOOP, live, terminal

pytest.importorskip("torch")


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return str(path)


def test_output_that_goes_elsewhere_is_the_same_to_the_byte(tmp_path: Path, script: str) -> None:
    plain = subprocess.run([sys.executable, script, "60"], capture_output=True, check=True)
    out, err = tmp_path / "out", tmp_path / "err"
    with terminal(live(tmp_path, sys.executable, script, "60"), redirect=f"> {out} 2> {err}") as term:
        assert term.end() == 0
        assert term.raw == b"", "nothing where stderr is no terminal"
    assert out.read_bytes() == plain.stdout
    assert plain.stderr in err.read_bytes()
    assert b"\x1b" not in err.read_bytes()


@pytest.mark.slow
def test_stdout_alone_that_goes_elsewhere_is_the_same_to_the_byte(tmp_path: Path, script: str) -> None:
    plain = subprocess.run([sys.executable, script, "60"], capture_output=True, check=True)
    out = tmp_path / "out"
    with terminal(live(tmp_path, sys.executable, script, "60"), redirect=f"> {out}") as term:
        assert term.end() == 0
        assert term.sane()
        assert b"\x1b7" in term.raw
    assert out.read_bytes() == plain.stdout

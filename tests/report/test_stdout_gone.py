"""Every command that prints: a full, closed or left stdout is one line or none, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FINISHED = {"best_metrics.json": "{}", "best.pth": "weights"}


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    run = tmp_path / "runs" / "a"
    run.mkdir(parents=True)
    for name, text in FINISHED.items():
        (run / name).write_text(text)
        os.utime(run / name, (1_700_000_000, 1_700_000_000))
    (tmp_path / "facts.md").write_text("A rate of 3 GB/s (verified 2020-01).\n")
    return {
        "help": ["--help"],
        "help of a command": ["collect", "--help"],
        "version": ["--version"],
        "box": ["box"],
        "explain": ["explain"],
        "stale": ["stale", str(tmp_path / "facts.md")],
        "collect": ["collect", str(tmp_path / "runs"), str(tmp_path / "kept")],
    }


def started(words: list[str], stdout: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "underfed", *words], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


NAMES = ["help", "help of a command", "version", "box", "explain", "stale", "collect"]


@pytest.mark.parametrize("name", NAMES)
def test_a_full_stdout_is_one_line(name: str, commands: dict[str, list[str]]) -> None:
    with open("/dev/full", "w") as full:
        done = started(commands[name], full.fileno())
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1 and "No space left" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_that_has_gone_is_told_nothing(name: str, commands: dict[str, list[str]]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = started(commands[name], theirs)
    os.close(theirs)
    assert done.returncode in {1, 128 + 13} and done.stderr == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_stdout_takes_nothing(name: str, commands: dict[str, list[str]]) -> None:
    words = [sys.executable, "-m", "underfed", *commands[name]]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *words], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode in {0, 1} and done.stderr == ""

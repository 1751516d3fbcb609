"""A healthy loop on a CPU that another program holds: the verdict names that instead of calling it well fed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import SCRIPTS, environment

pytestmark = pytest.mark.torch


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Start what is started here on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def spinning(count: int) -> Iterator[None]:
    """Run programs that want a CPU all the time."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def watched(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "d.json"
    command = [sys.executable, SCRIPTS / "healthy_mlp.py", "--epochs", "1"]
    words = ["--out", tmp_path / "recording", "--json", file, "--", *command]
    subprocess.run(
        [sys.executable, "-m", "underfed", "run", *words], env=environment(), check=True, capture_output=True
    )
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def test_a_cpu_that_another_program_holds_is_named(tmp_path: Path) -> None:
    with on_one_cpu(), spinning(2):
        found = watched(tmp_path)
    verdict = found["verdict"]
    assert verdict["confidence"] != "high"
    assert "had no CPU" in verdict["text"]
    assert "well fed" not in verdict["text"]
    assert "CPUs to spare" in verdict["settle"]
    assert any("holds that wait" in limit for limit in found["limits"])

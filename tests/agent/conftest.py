"""Runs a small script under the real command and reads back what its agent wrote."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording, read

UNDERFED = [sys.executable, "-m", "underfed", "run"]


@dataclass(frozen=True)
class Watched:
    """How a watched script ended, and its recording."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def recording(self) -> Recording:
        return read(self.folder)

    @property
    def main(self) -> ProcessLog:
        """The training process: the one with most steps."""
        return max(self.recording.processes, key=lambda log: len(log.step_rows()))

    def rows(self, kind: int) -> list[list[int]]:
        return [row for row in self.main.step_rows() if row[1] == kind]


Run = Callable[..., Watched]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write a script, run it under `underfed run`, and return what happened."""

    def start(
        source: str,
        *words: str,
        bare: bool = False,
        env: dict[str, str] | None = None,
        name: str = "a",
        window: str = "off",
    ) -> Watched:
        script = tmp_path / f"{name}.py"
        script.write_text("import torch\ntorch.set_num_threads(1)\ntorch.manual_seed(0)\n" + source)
        folder = tmp_path / f"{name}.recording"
        command = [sys.executable, str(script), *words]
        if not bare:
            command = [*UNDERFED, "--window", window, "--out", str(folder), "--", *command]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        return Watched(done.returncode, done.stdout, done.stderr, folder)

    return start


def exact(row: list[int]) -> bool:
    """Whether a step row's regions add up to its wall clock, to the nanosecond."""
    at = r.STEP_COLUMNS.index("data")
    return sum(row[at : at + len(r.STEP_REGIONS)]) == row[r.STEP_COLUMNS.index("wall")]

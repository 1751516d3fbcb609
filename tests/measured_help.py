"""Commands that run a training script several times, on a script whose truth is known."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measured:
    """What a command gave: exit code, JSON, page and progress."""

    code: int
    record: dict[str, Any]
    page: str
    said: str


def written(folder: Path, text: str) -> list[str]:
    """Write a training script, and return the command that runs it."""
    path = folder / "train.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def measured(folder: Path, words: Sequence[str], command: Sequence[str]) -> Measured:
    """Run `underfed WORDS -- COMMAND` in a folder, below which its runs go; a traceback fails the test."""
    out = folder / "measured.json"
    line = [sys.executable, "-m", "underfed", *words, "--out", str(folder / "runs"), "--json", str(out), "--", *command]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr, done.stderr
    record = json.loads(out.read_text()) if out.exists() else {}
    return Measured(done.returncode, record, done.stdout, done.stderr)

"""A far side on loopback: a real sshd, the Python that it finds there, and commands that go to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("attach", "carry")]
from attach_help import script, started
from sshd_help import Box, Link

__all__ = ["UNDERFED", "Box", "Link", "ask", "bare_box", "far_python", "left_behind", "python_of", "script", "started"]

UNDERFED = [sys.executable, "-m", "underfed"]


def far_python(tmp_path: Path, program: str) -> Path:
    """A folder whose `python3` is the given program, with a folder for temporary files of its own."""
    folder = tmp_path / "far"
    folder.mkdir()
    (tmp_path / "there").mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nTMPDIR={tmp_path}/there exec {program} "$@"\n')
    (folder / "python3").chmod(0o755)
    return folder


def python_of(version: str) -> str:
    """An interpreter of that version that starts; pyenv keeps several, and its shims stand for those it does not."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for program in [*kept.glob(f"{version}.*/bin/python"), shutil.which(f"python{version}")]:
        if program and not subprocess.run([str(program), "-c", ""], capture_output=True, check=False).returncode:
            return str(program)
    pytest.skip(f"there is no Python {version} here")


def ask(box: Box, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*UNDERFED, *words],
        env={**os.environ, **box.env},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        **options,
    )


def left_behind(box: Box) -> set[Path]:
    return set((box.folder.parent / "there").glob("underfed-*"))


@contextmanager
def bare_box(tmp_path: Path) -> Iterator[Box]:
    """A host whose Python has nothing installed: this one, without its packages."""
    place = far_python(tmp_path, f"{sys.executable} -I -S")
    made = Box(tmp_path / "box", f"{place}:/usr/bin:/bin").start()
    try:
        yield made
    finally:
        made.close()

"""The hooks for pre-commit, shipped and in the docs: each names a command that is there, and it judges."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from audit_help import LOOP

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]


def documented() -> dict:
    """The hook that docs/audit.md tells people to write into their own file."""
    block = re.search(r"^    - repo: local\n(?:    .*\n)+", (ROOT / "docs/audit.md").read_text(), re.MULTILINE)
    assert block is not None
    [repository] = yaml.safe_load(block[0])
    [hook] = repository["hooks"]
    return hook


def shipped() -> dict:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return hook


@pytest.mark.parametrize("read", [shipped, documented])
def test_a_hook_names_a_command_that_is_there_and_ends_with_its_verdict(read, tmp_path: Path) -> None:
    hook = read()
    program, *words = [*shlex.split(hook["entry"]), *hook.get("args", [])]
    [script] = entry_points(group="console_scripts", name=program)
    assert callable(script.load())
    (tmp_path / "slow.py").write_text(LOOP)
    (tmp_path / "fine.py").write_text("import torch\n")
    for files, code in ((["slow.py", "fine.py"], 1), (["fine.py"], 0)):
        done = subprocess.run(
            [sys.executable, "-m", program, *words, *files], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stderr == ""


def test_the_shipped_hook_takes_notebooks_and_reads_all_files_together() -> None:
    hook = shipped()
    assert {"id", "name", "entry", "language"} <= hook.keys() and hook["language"] == "python"
    assert set(hook["types_or"]) == {"python", "jupyter"} and hook["require_serial"] is True

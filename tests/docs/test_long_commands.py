"""The commands of the docs that take a minute, a second process or a second machine, each as it is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from docs_commands_help import EXPECTED, LONG, ROOT, prepare, words_to_run

PATH = f"{sysconfig.get_path('scripts')}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
#: A run to attach to: the same loop until somebody ends it.
ENDLESS = "import runpy, sys\nsys.argv = ['train.py']\nwhile True:\n    runpy.run_path('once.py')\n"


@contextmanager
def beside(command: str, folder: Path) -> Iterator[dict[str, str]]:
    """Give a command what has to run beside it; yields what it needs in its environment."""
    if "attach" in command:
        (folder / "train.py").rename(folder / "once.py")
        (folder / "train.py").write_text(ENDLESS, encoding="utf-8")
        with subprocess.Popen(
            [sys.executable, "train.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as run:
            try:
                assert run.stdout is not None
                assert run.stdout.readline(), "the run did not begin"
                yield {"PID": str(run.pid)}
            finally:
                run.kill()
    elif "pull" in command:
        sys.path.append(str(ROOT / "tests" / "carry"))
        from sshd_help import Box

        (folder / "durable/results/one").mkdir()
        (folder / "durable/results/one/best_metrics.json").write_text("{}\n", encoding="utf-8")
        box = Box(folder / "box").start()
        try:
            yield box.env
        finally:
            box.close()
    else:
        yield {}


@pytest.mark.torch
@pytest.mark.parametrize(
    "command", [pytest.param(one, marks=[] if "pull" in one else pytest.mark.slow) for one in LONG]
)
def test_it_runs_as_it_is_shown(command: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    with beside(command, tmp_path) as given:
        path = given["PATH"].partition(os.pathsep)[0] + os.pathsep + PATH if "PATH" in given else PATH
        words = words_to_run(command.replace("PID", given.get("PID", "PID")), str(tmp_path / "recording"))
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    allowed = next((codes for start, codes in EXPECTED.items() if command.startswith(start)), {0})
    assert done.returncode in allowed, f"{done.stdout[-800:]}\n{done.stderr[-1500:]}"
    assert re.search(r"\d ms|verified|waits for", done.stdout + done.stderr), "it says nothing"
    assert "Traceback" not in done.stderr

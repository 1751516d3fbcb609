"""`underfed try` where no time is judged: what changes the numbers, what crashes, what cannot be switched, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trial_help import script, tried

pytestmark = pytest.mark.torch


def test_a_change_that_alters_the_numbers_is_caught(tmp_path: Path) -> None:
    """The program draws its batches by a generator that workers share: with workers the losses differ."""
    extra = "from torch.utils import data"
    text = "x = x + torch.randn(()) if loader.num_workers else x\n"
    command = script(tmp_path, extra)
    path = Path(command[-1])
    source = path.read_text().replace("        loss = nn", f"        {text}        loss = nn", 1)
    path.write_text(source)
    found = tried(tmp_path, ["T4=1"], command, timed=False)
    arm = found.arm("T4=1")
    assert arm["truth"]["ok"] is False and arm["truth"]["numbers"] == "differ", found.page
    assert found.code == 1 and "FAILED" in found.page


def test_a_crash_in_the_changed_run_is_no_gain(tmp_path: Path) -> None:
    command = script(tmp_path, "if loader.num_workers: raise ValueError('no workers please')")
    found = tried(tmp_path, ["T4=2"], command, timed=False)
    arm = found.arm("T4=2")
    assert found.code == 1 and arm["outcome"] == "crashed" and arm["exit_code"] == 1
    assert "no workers please" in found.page and arm["gain"] is None


def test_a_command_that_fails_by_itself_gives_no_trial(tmp_path: Path) -> None:
    found = tried(tmp_path, ["T4=2"], [sys.executable, "-c", "raise SystemExit(3)"])
    assert found.code == 3 and "exit code 3" in found.said


@pytest.mark.parametrize("rule", ["X6", "U8"])
def test_what_needs_an_edit_is_told_apart(tmp_path: Path, rule: str) -> None:
    found = tried(tmp_path, [rule], script(tmp_path))
    assert found.code == 3 and "needs your edit" in found.page and found.trial["runs"] == []
    assert found.arm(rule)["edit"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nonsense"], "no such rule"),
        (["T4=x"], "whole number"),
        (["T4=2", "X1=3"], "twice"),
        (["tf32=maybe"], "give tf32 a value"),
        ([], "no rule"),
    ],
)
def test_words_that_cannot_be_used(tmp_path: Path, words: list[str], says: str) -> None:
    found = tried(tmp_path, words, script(tmp_path))
    assert found.code == 2 and says in found.said


def test_switches_without_a_device_have_nothing_to_act_on(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    found = tried(tmp_path, ["T9"], script(tmp_path), timed=False)
    arm = found.arm("T9")
    assert arm["outcome"] == "not-applied" and "no device" in arm["text"] and arm["gain"] is None


def test_ctrl_c_leaves_what_was_measured_and_no_process(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    line = [sys.executable, "-m", "underfed", "try", "T4=4", "--out", str(out), "--", *script(tmp_path)]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(out.glob("02-*/p*.jsonl")):
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        page, said = process.communicate()
    assert process.returncode == 130 and "interrupted" in said and "Traceback" not in said
    assert "the trial was interrupted" in page
    assert json.loads((out / "trial.json").read_text())["complete"] is False
    marked = f"UNDERFED_AGENT={out}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert marked not in entry.read_bytes() or entry.parent.name == str(os.getpid())
        except OSError:
            continue


SWITCHES = [
    "persistent_workers",
    "prefetch_factor=3",
    "threads=1",
    "channels_last",
    "optimizer=foreach",
    "anomaly",
    "gc",
    "autocast",
    "checkpointing",
    "cudnn_benchmark",
]


@pytest.mark.slow
@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_leaves_a_script_running(tmp_path: Path, switch: str) -> None:
    found = tried(tmp_path, [switch], script(tmp_path), timed=False)
    (arm,) = found.trial["arms"]
    told = {"no-change", "not-applied", "faster", "slower"}
    assert arm["outcome"] in told or "too disturbed to tell" in arm["text"], found.page
    assert arm["truth"] is None or arm["truth"]["ok"] is not False, found.page

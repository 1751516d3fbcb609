"""Odd processes are told, and what cannot be looked at is refused in one line: nothing here judges what a run took."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attach_help import PLAIN, SCRIPTS, UNDERFED, attach, script, started, state


def test_a_stopped_process_is_told_and_stays_stopped() -> None:
    with started(PLAIN) as process:
        os.kill(process.pid, signal.SIGSTOP)
        seen = attach(process.pid, "--seconds", 2)
        assert seen.code == 0
        assert seen.head == "stopped"
        assert f"kill -CONT {process.pid}" in seen.text
        assert state(process.pid) == "T"


def test_a_zombie_is_told() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    seen = attach(child.pid)
    child.wait()
    assert seen.code == 3
    assert "zombie" in seen.err
    assert str(os.getpid()) in seen.err


def test_a_process_without_python_is_told() -> None:
    with started(["sleep", "600"], wait=False) as process:
        seen = attach(process.pid, "--seconds", 1)
        assert seen.code == 3
        assert "runs no Python" in seen.err


@pytest.mark.parametrize("words", [["0"], ["99999999"], ["-5"], [""], ["nothing has this in its command line"]])
def test_what_is_no_process_is_refused_in_one_line(words: list[str]) -> None:
    seen = attach(*words)
    assert seen.code == 2
    assert len(seen.err.splitlines()) == 1


def test_a_name_that_fits_several_runs_lists_them() -> None:
    mark = f"mark-{os.getpid()}"
    words = [*PLAIN, mark]
    with started(words) as first, started(words) as second:
        seen = attach(mark)
        assert seen.code == 2
        listed = [line.split()[0] for line in seen.err.splitlines()[1:]]
        assert sorted(listed) == sorted([str(first.pid), str(second.pid)])
    with started(words) as only:
        seen = attach(mark, "--seconds", 1)
        assert seen.code == 0
        assert seen.data["live"]["pid"] == only.pid


def test_a_worker_or_a_thread_leads_to_its_run() -> None:
    pytest.importorskip("torch")
    with started(script("starved", "1")) as process:
        time.sleep(1)
        threads = [int(name) for name in os.listdir(f"/proc/{process.pid}/task") if int(name) != process.pid]
        (worker,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for number in (worker, threads[0]):
            seen = attach(number, "--seconds", 1)
            assert seen.code == 0
            assert seen.data["live"]["pid"] == process.pid


def test_no_gpu_is_said_in_one_line() -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU")
    seen = attach("--gpu", 0)
    assert seen.code == 2
    assert len(seen.err.splitlines()) == 1


def test_the_json_is_a_diagnosis_by_the_schema_and_by_its_reader(tmp_path: Path) -> None:
    import jsonschema

    from underfed.diagnosis import from_json, json_schema

    file = tmp_path / "seen.json"
    with started([sys.executable, str(SCRIPTS / "own_signals.py")]) as process:
        done = subprocess.run(
            [*UNDERFED, "attach", str(process.pid), "--seconds", "1", "--json", "-"], capture_output=True, check=True
        )
        file.write_bytes(done.stdout)
    read = from_json(file.read_bytes())
    assert read.subject.kind == "live"
    jsonschema.validate(json.loads(done.stdout), json_schema())

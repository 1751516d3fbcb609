"""`attach --host` against a real sshd on loopback: a run of another machine is judged as one of this."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_help import UNDERFED, Box, ask, bare_box, left_behind, script, started


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with bare_box(tmp_path) as made:
        yield made


def test_a_run_of_another_machine_is_judged_as_one_of_this(box: Box) -> None:
    pytest.importorskip("torch")
    with started(script("starved", "0")) as run:
        done = ask(box, "attach", str(run.pid), "--host", "box", "--seconds", "4", "--json", "-")
        assert run.poll() is None
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["verdict"]["bound"] == "data"
    assert any("starved.py" in str(finding["where"]) for finding in told["findings"])
    assert not left_behind(box), "nothing is left there"


def test_ctrl_c_brings_back_what_was_seen_until_then(box: Box) -> None:
    pytest.importorskip("torch")
    with started(script("starved", "0")) as run:
        asked = subprocess.Popen(
            [*UNDERFED, "attach", str(run.pid), "--host", "box", "--seconds", "50", "--json", "-"],
            env={**os.environ, **box.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not any((one / "parcel.zip").exists() for one in left_behind(box)):
            time.sleep(0.05)
        time.sleep(4)  # something has to be seen
        asked.send_signal(2)
        out, said = asked.communicate()
    assert asked.returncode == 0, said
    assert json.loads(out)["verdict"]["bound"] in {"data", "unknown"}
    assert not left_behind(box)

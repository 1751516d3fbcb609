"""`attach --host` and `box --host` where no run is judged: other Pythons, what is refused, what the far side says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote_help import UNDERFED, Box, Link, ask, bare_box, far_python, left_behind, python_of, started

from underfed.remote.parcel import parcel
from underfed.remote.seen import pack, unpack


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    with bare_box(tmp_path) as made:
        yield made


def test_the_box_of_another_machine_is_the_box_it_says_itself(box: Box) -> None:
    there, here = ask(box, "box", "--host", "box", "--json"), ask(box, "box", "--json")
    assert there.returncode == 0, there.stderr
    far, near = json.loads(there.stdout), json.loads(here.stdout)
    assert far["schema"] == near["schema"]
    assert far.keys() == near.keys()
    for name in ("visible", "affinity", "quota", "usable", "cores"):
        assert far["cpu"][name] == near["cpu"][name]
    assert far["memory"]["total"] == near["memory"]["total"]
    assert far["storage"][0]["folder"] == "home folder"
    assert far["storage"][0]["probe"]["write_mb_s"] > 0 or far["storage"][0]["skipped"]


def test_what_cannot_be_reached_or_used_is_one_line_each(box: Box, tmp_path: Path) -> None:
    lines = {}
    box.configure(box.port, key="stranger")
    lines["auth"] = ask(box, "box", "--host", "box")
    box.configure(1)
    lines["port"] = ask(box, "box", "--host", "box")
    box.configure(box.port)
    known = box.known.read_text()
    box.known.write_text(f"[127.0.0.1]:{box.port} {(box.folder / 'user.pub').read_text()}")
    lines["key"] = ask(box, "box", "--host", "box")
    box.known.write_text(known)
    lines["name"] = ask(box, "box", "--host", "no-such-host.invalid")
    lines["option"] = ask(box, "box", f"--host=-oProxyCommand=touch {tmp_path}/ran")
    lines["pid"] = ask(box, "attach", "999999999", "--host", "box", "--seconds", "1")
    for what, done in lines.items():
        assert done.returncode == 2, (what, done.stderr)
        said = done.stderr.strip().splitlines()
        assert said and "Traceback" not in done.stderr, (what, done.stderr)
        assert done.stdout == ""
    assert not (tmp_path / "ran").exists()
    assert "refuses the login" in lines["auth"].stderr
    assert "cannot be reached" in lines["port"].stderr
    assert "host key" in lines["key"].stderr
    assert "no process 999999999" in lines["pid"].stderr
    assert len({done.stderr for done in lines.values()}) == len(lines)


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_an_old_python_says_that_it_is_one(tmp_path: Path, version: str) -> None:
    place = far_python(tmp_path, python_of(version))
    box = Box(tmp_path / "box", f"{place}:/usr/bin:/bin").start()
    try:
        done = ask(box, "box", "--host", "box")
    finally:
        box.close()
    assert done.returncode == 2
    assert f"its python3 is {version}; the look needs 3.9 or newer" in done.stderr


def test_no_python_says_that_there_is_none(tmp_path: Path) -> None:
    place = tmp_path / "far"
    place.mkdir()
    for name in ("sh", "cat", "env"):
        (place / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    box = Box(tmp_path / "box", str(place)).start()
    try:
        done = ask(box, "box", "--host", "box")
    finally:
        box.close()
    assert done.returncode == 2, done.stderr
    assert "python3" in done.stderr and "Traceback" not in done.stderr


def test_a_dropped_link_is_said_and_the_far_side_cleans_up(box: Box) -> None:
    link = Link(box.port)
    box.configure(link.port)
    with started([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]) as run:
        asked = subprocess.Popen(
            [*UNDERFED, "attach", str(run.pid), "--host", "box", "--seconds", "50"],
            env={**os.environ, **box.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while not left_behind(box):
            assert asked.poll() is None, asked.stderr.read() if asked.stderr else ""
            time.sleep(0.05)
        for end in link._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        _, said = asked.communicate()
        while left_behind(box):
            time.sleep(0.05)
    assert asked.returncode == 3
    assert "link dropped" in said


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13", "3.14"])
def test_the_eyes_work_on_other_pythons(tmp_path: Path, version: str) -> None:
    program = python_of(version)
    (tmp_path / "parcel.zip").write_bytes(parcel())
    body = (
        "import json, os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from underfed.observe.host.box.gather import gather\n"
        "from underfed.observe.live.target import choose\n"
        "from underfed.observe.live.window import watch\n"
        "from underfed.remote.seen import pack, plain_record\n"
        "print(json.dumps([plain_record(gather({}, write=False)), pack(watch(choose(sys.argv[2], None), 0.5))]))\n"
    )
    with started([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]) as run:
        done = subprocess.run(
            [program, "-I", "-c", body, str(tmp_path / "parcel.zip"), str(run.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told, seen = json.loads(done.stdout)
    assert told["cpu"]["visible"]
    assert unpack(seen).lives[0].first.pid == run.pid


def test_what_was_seen_comes_back_as_it_was() -> None:
    from underfed.observe.live.target import choose
    from underfed.observe.live.window import watch

    with started([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"]) as run:
        seen = watch(choose(str(run.pid), None), 1.0)
    again = unpack(json.loads(json.dumps(pack(seen))))
    assert again == seen


def test_an_answer_that_is_none_of_ours_is_refused() -> None:
    for data in ({}, {"sampling": 3}, {"sources": [], "holding": None, "sampling": {}}):
        with pytest.raises(ValueError, match="none of ours"):
            unpack(data)

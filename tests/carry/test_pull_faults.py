"""pull under kills at random points, and a sparse file larger than what it holds."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import threading
import time
from pathlib import Path

import pytest
from carry_help import files_of, hash_of, in_child, kill_after, make_run, mounted, tree, underfed, wait_for, with_quota
from sshd_help import Box

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")

KILLS_ALWAYS, KILLS_SLOW = 8, 200
INCOMING = ".underfed-incoming"


@pytest.fixture
def box(tmp_path: Path):
    made = Box(tmp_path / "box").start()
    yield made
    made.close()


def nothing_is_false(dst: Path, far: Path, before: dict[str, str]) -> None:
    """A file under its own name is what lies on the far side, or what lay here before: whole, never half."""
    truth = files_of(far)
    for name, digest in files_of(dst, (INCOMING,)).items():
        if name.startswith(".underfed-probe-"):
            continue  # of a write probe that was killed; the next pull removes it
        assert digest in {truth.get(name), before.get(name)}, name


def test_the_probe_of_a_killed_pull_is_cleared(box: Box, tmp_path: Path) -> None:
    make_run(tmp_path / "far/a")
    for name, files in (("of-a-kill", ["0", "1"]), ("half-removed", ["1", "2"]), ("empty", []), ("held", ["0"])):
        left = tmp_path / "dst" / f".underfed-probe-{name}"
        left.mkdir(parents=True)
        for file in files:
            (left / file).write_bytes(bytes(1000))
    with open(tmp_path / "dst/.underfed-probe-held/0", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        assert underfed("pull", f"box:{tmp_path}/far", tmp_path / "dst", env=box.env).returncode == 0
        assert [path.name for path in (tmp_path / "dst").glob(".underfed-*")] == [".underfed-probe-held"]


def kill_pull(box: Box, tmp_path: Path, kills: int) -> int:
    """Kill, check all that is claimed, let one end, compare it with the source; return how many were killed."""
    chance = random.Random(21)
    far, dst = tmp_path / "far", tmp_path / "dst"
    killed = version = 0
    length = 1.0
    while killed < kills:
        for number in range(3):
            run = make_run(far / f"run {number}", version * 10 + number, 6_000_000)
            for small in range(40):
                (run / "protocol" / f"{small}.yaml").write_text(f"{version} {small}")
        before = files_of(dst, (INCOMING,)) if dst.exists() else {}
        for _ in range(chance.randint(3, 6)):
            ended = kill_after(in_child(["pull", f"box:{far}", str(dst)], box.env), chance.uniform(0.05, length))
            assert ended in {None, 0}
            killed += ended is None
            if dst.exists():
                nothing_is_false(dst, far, before)
        began = time.monotonic()
        assert wait_for(in_child(["pull", f"box:{far}", str(dst)], box.env)) == 0
        length = max(0.5, time.monotonic() - began)
        assert tree(dst) == tree(far)
        version += 1
    return killed


def test_killed_at_random_points(box: Box, tmp_path: Path) -> None:
    assert kill_pull(box, tmp_path, KILLS_ALWAYS) >= KILLS_ALWAYS


@pytest.mark.slow
def test_killed_at_many_random_points(box: Box, tmp_path: Path) -> None:
    assert kill_pull(box, tmp_path, KILLS_SLOW) >= KILLS_SLOW


def test_no_room_for_the_bytes(box: Box, tmp_path: Path) -> None:
    make_run(tmp_path / "far/a", size=3_000_000)
    with mounted(tmp_path / "dst", "size=2m") as dst:
        done = underfed("pull", f"box:{tmp_path}/far", dst, env=box.env)
        assert done.returncode == 2 and "are needed" in done.stdout, done.stdout + done.stderr
        assert "safe to release: no" in done.stdout and not files_of(dst)


def test_no_room_for_the_files(box: Box, tmp_path: Path) -> None:
    """The empty files that are made as a trial are gone again, and what was there is still there."""
    run = make_run(tmp_path / "far/a", size=100)
    for number in range(50):
        (run / "protocol" / str(number)).touch()
    with mounted(tmp_path / "dst", "size=20m", "nr_inodes=40") as dst:
        (dst / "mine").write_text("mine")
        done = underfed("pull", f"box:{tmp_path}/far", dst, env=box.env)
        assert done.returncode == 2 and "inodes are needed" in done.stdout, done.stdout + done.stderr
        assert list(files_of(dst)) == ["mine"]


def test_the_disk_fills_up_on_the_way(box: Box, tmp_path: Path) -> None:
    """What was proven keeps its name, the rest gets none, and the next pull goes on from there."""
    for number in range(4):
        make_run(tmp_path / f"far/{number}", number, 6_000_000)
    with mounted(tmp_path / "dst", "size=40m") as dst:
        stop = threading.Event()

        def fill() -> None:
            while not stop.is_set() and not any((dst / INCOMING).rglob("best.pth")):
                time.sleep(0.001)
            with open(dst / "filler", "wb", buffering=0) as file:
                try:
                    while not stop.is_set():
                        file.write(bytes(1 << 16))
                except OSError:
                    stop.wait(30)

        other = threading.Thread(target=fill)
        other.start()
        done = underfed("pull", f"box:{tmp_path}/far", dst, "--retry-for", "1", env=box.env)
        stop.set()
        other.join()
        (dst / "filler").unlink()
        nothing_is_false(dst, tmp_path / "far", {})
        assert done.returncode in {1, 2} and "full" in done.stdout, done.stdout + done.stderr
        assert "safe to release: no" in done.stdout
        assert underfed("pull", f"box:{tmp_path}/far", dst, env=box.env).returncode == 0
        assert tree(dst) == tree(tmp_path / "far")


def test_a_quota_that_no_count_shows(box: Box, tmp_path: Path) -> None:
    make_run(tmp_path / "far/a", size=3_000_000)
    with with_quota(tmp_path / "dst", tmp_path / "image") as dst:
        done = underfed("pull", f"box:{tmp_path}/far", dst, env=box.env)
        assert done.returncode == 2 and "quota" in done.stdout, done.stdout + done.stderr
        assert "safe to release: no" in done.stdout and not files_of(dst)


def test_a_read_only_destination(box: Box, tmp_path: Path) -> None:
    make_run(tmp_path / "far/a")
    with mounted(tmp_path / "dst", "ro") as dst:
        done = underfed("pull", f"box:{tmp_path}/far", dst, env=box.env)
        assert done.returncode == 2 and "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("gigabytes", [0.2, pytest.param(5, marks=pytest.mark.slow)])
def test_holes_stay_holes(box: Box, tmp_path: Path, gigabytes: float) -> None:
    run = make_run(tmp_path / "far/a")
    size = int(gigabytes * 2**30)
    with open(run / "sparse.bin", "wb") as file:
        for at in (0, size // 3, size - 5):
            file.seek(at)
            file.write(b"bytes")
    done = underfed("pull", f"box:{tmp_path}/far", tmp_path / "dst", env=box.env)
    assert done.returncode == 0, done.stdout + done.stderr
    here = tmp_path / "dst/a/sparse.bin"
    assert here.stat().st_size == size and hash_of(here) == hash_of(run / "sparse.bin")
    assert here.stat().st_blocks * 512 < max(os.stat(run / "sparse.bin").st_blocks * 512 * 8, size // 10)

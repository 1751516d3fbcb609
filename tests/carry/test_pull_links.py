"""pull over links of all kinds: by a jump host, cut in the middle, watched on a terminal, in few sessions."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from carry_help import UNDERFED, files_of, make_run, underfed
from sshd_help import Box, Link
from test_pull import bare_box

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


@pytest.fixture
def box(tmp_path: Path):
    made = Box(tmp_path / "box").start()
    yield made
    made.close()


@pytest.fixture
def far(tmp_path: Path) -> Path:
    for number, name in enumerate("abcd"):
        make_run(tmp_path / "far" / name, number, 2_000_000)
    return tmp_path / "far"


def test_by_a_jump_host_and_compressed(box: Box, far: Path, tmp_path: Path) -> None:
    """The host itself cannot be reached: the user's configuration leads to it by another one."""
    (far / "a/zeros.bin").write_bytes(b"compresses well " * 1_000_000)
    plain = (box.folder / "config").read_text().replace("Host box", "Host jump")
    (box.folder / "jump").write_text(plain)
    link = Link(box.port)
    plain = plain.replace(f" Port {box.port}", f" Port {link.port}")
    (box.folder / "jump").write_text(plain)
    box.configure(1, command=f" ProxyCommand {shutil.which('ssh')} -F {box.folder}/jump -W 127.0.0.1:{box.port} jump\n")
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--compress", env=box.env)
    link.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_of(tmp_path / "dst") == files_of(far)
    assert 0 < link.passed < 12_000_000  # 24 MB, two thirds of which are the same again and again


@pytest.mark.parametrize(
    "tools",
    [
        ["rsync"],
        pytest.param(["tar", "sha256sum"], marks=pytest.mark.slow),
        pytest.param(["python3", "tar"], marks=pytest.mark.slow),
    ],
)
def test_a_link_that_is_cut_goes_on_where_it_was(tmp_path: Path, tools: list[str]) -> None:
    """rsync goes on within a file, tar with the next one: what came before the cut does not come again."""
    far = tmp_path / "far"
    for number in range(8):
        make_run(far / "a" / str(number), number, 1_000_000)
    box = (bare_box(tmp_path, tools) if tools != ["rsync"] else Box(tmp_path / "box")).start()
    link = Link(box.port)
    box.configure(link.port)
    link.limits = [5_000_000] * 4
    try:
        done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "again in" in done.stderr and "dropped" in done.stderr
        assert files_of(tmp_path / "dst") == files_of(far)
        assert link.passed < 14_000_000  # 8 MB, and what was under way at each cut; from the start each time: 23 MB
    finally:
        link.close()
        box.close()


def test_what_is_here_stays_until_its_replacement_is_whole(box: Box, far: Path, tmp_path: Path) -> None:
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 0
    here = tmp_path / "dst/b/best.pth"
    make_run(far / "b", 99, 20_000_000)
    before = here.read_bytes()
    link = Link(box.port)
    box.configure(link.port)
    link.limits = [3_000_000] * 100
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--retry-for", 0, env=box.env)
    link.close()
    assert done.returncode == 1 and "safe to release: no" in done.stdout, done.stdout + done.stderr
    assert here.read_bytes() == before
    box.configure(box.port)
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 0
    assert files_of(tmp_path / "dst") == files_of(far)


@pytest.mark.parametrize(("workers", "sessions"), [(1, 2), (4, 5)])
def test_folders_share_sessions_as_far_as_the_workers_let_them(
    box: Box, far: Path, tmp_path: Path, workers: int, sessions: int
) -> None:
    """One looks and hashes; small folders come together, or at once, and each has its own line all the same."""
    link = Link(box.port)
    box.configure(link.port)
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--workers", workers, env=box.env)
    link.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(line.split()[1] for line in done.stdout.splitlines() if line.startswith("verified")) == list("abcd")
    assert link.connections == sessions


def test_a_folder_that_fails_costs_the_others_of_its_session_nothing(box: Box, far: Path, tmp_path: Path) -> None:
    (far / "b/dead").symlink_to("nowhere")
    (tmp_path / "dst/c").mkdir(parents=True)
    (tmp_path / "dst/c/best.pth").mkdir()
    done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
    assert done.returncode == 1 and "safe to release: no" in done.stdout
    for name, word in zip("abcd", ("verified", "FAILED", "FAILED", "verified"), strict=True):
        assert re.search(rf"^{word} +{name} ", done.stdout, re.MULTILINE), done.stdout


def test_a_bar_with_rate_and_time_left_and_a_quiet_form(box: Box, far: Path, tmp_path: Path) -> None:
    (far / "a/big.bin").write_bytes(os.urandom(120_000_000))
    ours, theirs = pty.openpty()
    words = [*UNDERFED, "pull", f"box:{far}", str(tmp_path / "dst")]
    child = subprocess.Popen(words, env={**os.environ, **box.env}, stderr=theirs, stdout=subprocess.DEVNULL)
    os.close(theirs)
    said = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        said += block
    os.close(ours)
    assert child.wait() == 0
    bar = rb"\[#*\.*\] [\d.]+ [kMG]?B of [\d.]+ MB, [\d.]+ [kMG]?B/s, \d+ s left, folder \d of 4"
    assert re.search(bar, said), said[-500:]
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--quiet", env=box.env)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("safe to release: yes")
    assert len(done.stdout.splitlines()) == 1

"""pull, against a real sshd: what arrives, what is proven, and what is said when it does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from carry_help import UNDERFED, files_of, in_child, make_run, tree, underfed, wait_for
from sshd_help import Box, Link, free_port

from underfed.carry.far import parse_address
from underfed.carry.fetch import local_rsync
from underfed.carry.pull import Watcher, pull
from underfed.carry.unit_outcome import PullOptions

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


@pytest.fixture
def box(tmp_path: Path):
    made = Box(tmp_path / "box").start()
    yield made
    made.close()


@pytest.fixture
def far(tmp_path: Path) -> Path:
    make_run(tmp_path / "far/a")
    make_run(tmp_path / "far/b c", 1)
    return tmp_path / "far"


def test_all_arrives_and_a_second_pull_skips(box: Box, far: Path, tmp_path: Path) -> None:
    (far / ".dot").write_text("d")
    (far / "loose").write_text("l")
    (far / "a/empty").mkdir()
    (far / "a/link").symlink_to("best.pth")
    done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tree(tmp_path / "dst") == tree(far)
    assert "safe to release: yes" in done.stdout
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--workers", 2, "--json", env=box.env)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["safe_to_release"] and {f["fetched_files"] for f in report["folders"]} == {0}


def test_four_outcomes_with_four_messages(box: Box, far: Path, tmp_path: Path) -> None:
    (tmp_path / "void").mkdir()
    done = underfed("pull", f"box:{tmp_path}/void", tmp_path / "d", env=box.env)
    assert done.returncode == 0 and "is empty" in done.stdout and "no (nothing was there)" in done.stdout
    done = underfed("pull", f"box:{tmp_path}/nowhere", tmp_path / "d", env=box.env)
    assert done.returncode == 2 and "no such folder" in done.stderr
    box.configure(box.port, key="stranger")
    done = underfed("pull", f"box:{far}", tmp_path / "d", env=box.env)
    assert done.returncode == 2 and "auth" in done.stderr
    box.configure(free_port())
    done = underfed("pull", f"box:{far}", tmp_path / "d", env=box.env)
    assert done.returncode == 2 and "cannot be reached" in done.stderr
    box.configure(box.port)
    box.known.write_text(f"[127.0.0.1]:{box.port} {(box.folder / 'stranger.pub').read_text()}")
    done = underfed("pull", f"box:{far}", tmp_path / "d", env=box.env)
    assert done.returncode == 2 and "host key" in done.stderr
    assert "nothing to download" not in done.stdout + done.stderr


@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_a_corrupt_local_file_is_fetched_again(box: Box, far: Path, tmp_path: Path, damage: str) -> None:
    """Size and time match for the first: the script's size-skip and rsync's quick check pass it."""
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 0
    victim = tmp_path / "dst/a/best.pth"
    data, state = bytearray(victim.read_bytes()), victim.stat()
    data[100] ^= 1
    victim.write_bytes({"flip": data, "truncate": data[:-5]}[damage])
    os.utime(victim, ns=(state.st_atime_ns, state.st_mtime_ns))
    (tmp_path / "dst/a/extra").write_text("mine")
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--check", env=box.env)
    assert done.returncode == 1 and "safe to release: no" in done.stdout
    done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
    assert done.returncode == 0 and files_of(tmp_path / "dst", ("extra",)) == files_of(far)
    assert (tmp_path / "dst/a/extra").read_text() == "mine"


def test_hard_names_and_many_files(box: Box, tmp_path: Path) -> None:
    run = make_run(tmp_path / "far" / "-rf two  $(touch pwned)\n'\"\\")
    for name in (
        "--help",
        "new\nline",
        "caf\u00e9",
        os.fsdecode(b"\xff"),
        "\x1b[2J",
        "*?[",
        "#c",
        "; rm",
        "~",
        "\\#040",
    ):
        (run / name).write_text(name, errors="surrogateescape")
    for number in range(4000):
        (run / f"small{number}").write_text(str(number))
    deep = run.joinpath(*"abcdefghijklmnopqrstuvwxyz" * 4)
    deep.mkdir(parents=True)
    (deep / "leaf").write_text("leaf")
    done = underfed("pull", f"box:{tmp_path}/far", tmp_path / "dst", env=box.env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files_of(tmp_path / "dst") == files_of(tmp_path / "far")
    assert not list(tmp_path.rglob("pwned")) and "\x1b" not in done.stdout


def test_links_that_leave_or_lead_nowhere_are_not_safe(box: Box, far: Path, tmp_path: Path) -> None:
    (far / "a/out").symlink_to("../../x")
    (far / "a/abs").symlink_to("/etc/passwd")
    (far / "a/dead").symlink_to("nowhere")
    done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
    assert done.returncode == 1 and done.stdout.count("leaves the destination") == 2 and "dead link" in done.stdout
    assert not (tmp_path / "dst/a/out").is_symlink() and not (tmp_path / "dst/a/abs").is_symlink()


def test_a_link_here_is_not_written_through(box: Box, far: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst/a").symlink_to(tmp_path / "elsewhere")
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 1
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_far_manifest_that_its_files_deny(box: Box, far: Path, tmp_path: Path) -> None:
    assert underfed("collect", far, tmp_path / "durable").returncode == 0
    victim = tmp_path / "durable/a/best.pth"
    state = victim.stat()
    victim.write_bytes(bytes(state.st_size))
    os.utime(victim, ns=(state.st_atime_ns, state.st_mtime_ns))
    done = underfed("pull", f"box:{tmp_path}/durable", tmp_path / "dst", env=box.env)
    assert done.returncode == 1 and "bytes did not match" in done.stdout and "verified  b c" in done.stdout
    assert not (tmp_path / "dst/a/best.pth").exists()


def bare_box(tmp_path: Path, tools: list[str]) -> Box:
    """A far side that has a shell, what goes with it, and these tools."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for tool in ["sh", "find", "cat", "wc", "tr", "readlink", "sleep", "printf", *tools]:
        (bare / tool).symlink_to(os.path.realpath(shutil.which(tool)))
    if "python3" in tools:
        (bare / "python3").unlink()
        (bare / "python3").write_text(f'#!/bin/sh\nexec {os.path.realpath(os.sys.executable)} -I "$@"\n')
        (bare / "python3").chmod(0o755)
    return Box(tmp_path / "box", far_path=str(bare))


@pytest.mark.parametrize("tools", [["python3", "tar"], ["tar", "sha256sum"], ["tar"]])
def test_a_bare_far_side(tmp_path: Path, far: Path, tools: list[str]) -> None:
    """No rsync there: tar. No Python: the shell. No hash tool either: carried, never called verified."""
    (far / "a/new\nline").write_text("x")
    box = bare_box(tmp_path, tools).start()
    try:
        done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
        assert files_of(tmp_path / "dst") == files_of(far), done.stdout + done.stderr
        if len(tools) == 1:
            assert done.returncode == 1 and "safe to release: no" in done.stdout
        else:
            assert done.returncode == 0 and "safe to release: yes" in done.stdout, done.stdout
    finally:
        box.close()


def test_a_name_that_is_taken_in_staging_costs_its_folder_alone(tmp_path: Path, far: Path) -> None:
    box = bare_box(tmp_path, ["tar", "sha256sum"]).start()
    try:
        (tmp_path / "dst/.underfed-incoming").mkdir(parents=True)
        (tmp_path / "dst/.underfed-incoming/a").write_text("in the way")
        done = underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env)
        assert done.returncode == 1 and done.stderr == "", done.stderr
        assert "verified  b c" in done.stdout and "a/best.pth: a link or a file is where" in done.stdout, done.stdout
    finally:
        box.close()


def test_a_file_here_that_may_not_be_read_is_named(box: Box, far: Path, tmp_path: Path) -> None:
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 0
    (tmp_path / "dst/a/best.pth").chmod(0)
    words = [*UNDERFED, "pull", f"box:{far}", str(tmp_path / "dst")]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may read everything, and there is no setpriv to take that away")
        words = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **box.env})
    if "setpriv:" in done.stderr:
        pytest.skip(f"rights cannot be given up: {done.stderr.strip()}")
    assert done.returncode == 1 and done.stderr == "", done.stderr
    assert (
        "a/best.pth: what is here cannot be read: Permission denied" in done.stdout and "verified  b c" in done.stdout
    )


def far_side_that_says(tmp_path: Path, *records: tuple[str, str]) -> dict[str, str]:
    """An environment whose `ssh` answers each script with these records (kind, path) and the end, whatever it asks."""
    answer = "".join(f"{kind}\\0\\0\\0\\0{path}\\0\\0" for kind, path in (*records, ("s", ""), ("e", "")))
    words = tmp_path / "bin" / "ssh"
    words.parent.mkdir()
    words.write_text(
        '#!/bin/sh\ncase " $* " in *" -G "*) exit 1;; esac\n'
        "while read -r line; do case $line in *underfed-*) break;; esac; done\n"
        f"printf '%s\\n' \"underfed-${{line##*underfed-}}\"\nprintf '{answer}'\ncat >/dev/null\n"
    )
    words.chmod(0o755)
    return {"PATH": f"{words.parent}:{os.environ['PATH']}"}


def test_names_that_lead_elsewhere_are_no_empty_folder(tmp_path: Path) -> None:
    env = far_side_that_says(tmp_path, ("f", "../evil"), ("f", "/etc/evil"))
    done = underfed("pull", "box:far", tmp_path / "dst", env=env)
    assert done.returncode == 1 and "safe to release: no" in done.stdout, done.stdout + done.stderr
    assert "no name here: ../evil" in done.stdout and not files_of(tmp_path / "dst")


def test_a_name_that_was_not_asked_for_is_noted(tmp_path: Path) -> None:
    env = far_side_that_says(tmp_path, ("d", "a"), ("f", ".underfed-incoming/b"), ("f", "c/../../evil"))
    done = underfed("pull", "box:far", tmp_path / "dst", env=env)
    assert "unfinished pull" in done.stdout and "safe to release: no" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1 and not files_of(tmp_path / "dst")


def test_sshd_killed_in_mid_transfer(box: Box, far: Path, tmp_path: Path) -> None:
    (far / "a/big.bin").write_bytes(os.urandom(100_000_000))
    child = in_child(["pull", f"box:{far}", str(tmp_path / "dst"), "--retry-for", "60"], box.env)
    staged, deadline = tmp_path / "dst/.underfed-incoming/a/big.bin", time.monotonic() + 30
    while time.monotonic() < deadline and not (staged.exists() and staged.stat().st_size > 5_000_000):
        time.sleep(0.005)
    box.kill()
    assert not (tmp_path / "dst/a/big.bin").exists()
    time.sleep(0.5)
    box.start()
    assert wait_for(child) == 0
    assert files_of(tmp_path / "dst") == files_of(far)


def test_a_link_that_falls_silent_counts_as_dropped(box: Box, far: Path, tmp_path: Path, monkeypatch) -> None:
    (far / "a/big.bin").write_bytes(os.urandom(50_000_000))
    link = Link(box.port)
    box.configure(link.port)
    monkeypatch.setenv("PATH", box.env["PATH"])
    local_rsync.cache_clear()
    retries: list[str] = []

    class Notes(Watcher):
        def moved(self, count: int) -> None:
            if not retries and not link.silent.is_set():
                link.silent.set()

        def retry(self, name: str, why: str, seconds: float) -> None:
            retries.append(why)
            link.silent.clear()

    options = PullOptions(silence=3.0, retry_for=60)
    result = pull(parse_address(f"box:{far}"), tmp_path / "dst", options, Notes())
    link.close()
    assert retries and result.exit_code == 0, result.summary()
    assert files_of(tmp_path / "dst") == files_of(far)


def test_an_accepting_but_mute_host_is_unreachable(box: Box, far: Path, tmp_path: Path, monkeypatch) -> None:
    link = Link(box.port)
    link.silent.set()
    box.configure(link.port)
    monkeypatch.setenv("PATH", box.env["PATH"])
    from underfed.errors import UsageError

    with pytest.raises(UsageError, match="unreachable"):
        pull(parse_address(f"box:{far}"), tmp_path / "dst", PullOptions(silence=2.0), Watcher())
    link.close()
    assert link.connections == 3
    assert not (tmp_path / "dst").exists()


@pytest.mark.parametrize("address", ["nohost", "-oProxyCommand=x:/y", ":/x", "a b:/x", "/local/path"])
def test_addresses_that_are_none(tmp_path: Path, address: str) -> None:
    done = underfed("pull", "--", address, tmp_path / "dst")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_an_interrupt_ends_a_stalled_transfer(box: Box, far: Path, tmp_path: Path) -> None:
    """Ctrl-C is not kept waiting for a far side that says nothing, and what came is there for the next pull."""
    (far / "a/big.bin").write_bytes(os.urandom(100_000_000))
    link = Link(box.port)
    box.configure(link.port)
    words = [*UNDERFED, "pull", f"box:{far}", str(tmp_path / "dst")]
    child = subprocess.Popen(words, env={**os.environ, **box.env}, stderr=subprocess.PIPE, text=True)
    staged = tmp_path / "dst/.underfed-incoming/a/big.bin"
    while child.poll() is None and not (staged.exists() and staged.stat().st_size > 5_000_000):
        time.sleep(0.002)
    link.silent.set()
    child.send_signal(signal.SIGINT)
    assert "run the same command again" in child.communicate(timeout=200)[1]
    assert child.returncode == 1 and not (tmp_path / "dst/a/big.bin").exists()
    link.close()
    box.configure(box.port)
    assert underfed("pull", f"box:{far}", tmp_path / "dst", env=box.env).returncode == 0
    assert files_of(tmp_path / "dst") == files_of(far)


def test_links_are_refused_on_request_and_folders_come_at_once(box: Box, far: Path, tmp_path: Path) -> None:
    (far / "a/link").symlink_to("best.pth")
    done = underfed("pull", f"box:{far}", tmp_path / "dst", "--links", "refuse", "--workers", 3, env=box.env)
    assert done.returncode == 1 and "links are refused" in done.stdout and "verified  b c" in done.stdout
    assert not (tmp_path / "dst/a/link").is_symlink() and files_of(tmp_path / "dst") == files_of(far)

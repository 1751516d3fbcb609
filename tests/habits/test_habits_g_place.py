"""Place, permission and platform: habits 53 to 56."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest
from habits_harness import PY, can, environment, requires_root

from underfed.recording.place import redacted


@pytest.fixture
def tmpdir(room):
    (room.folder / "tmp").mkdir()
    return room.folder / "tmp"


def run_default(room, tmpdir, *command, **how):
    return room.plain([*room.tool, "run", "--", *(command or ("true",))], env=environment(TMPDIR=str(tmpdir)), **how)


def test_habit_53_each_run_gets_a_new_folder_of_its_own(room, tmpdir):
    """Also two at the same second, and from a place where nothing can be written; told once, absolute."""
    seen = [run_default(room, tmpdir, cwd="/proc") for _ in range(3)]
    parent = tmpdir / f"underfed-{os.geteuid()}"
    folders = sorted(parent.iterdir())
    assert len(folders) == 3
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    for folder in folders:
        assert re.fullmatch(r"\d{8}-\d{6}-[\w.-]+-\d+(-\d+)?", folder.name)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sum(one.stderr.decode().count(f"recording to {folder}\n") for one in seen) == 1


def test_habit_53_parallel_runs_of_the_same_pid_and_second_do_not_meet(tmpdir):
    """As in two containers that share /tmp."""
    code = (
        "import os, time\nfrom underfed.recording import place\n"
        "print(*[place.new_folder(None) for _ in range(50)], sep='\\n')\n"
    )
    done = subprocess.run(
        [PY, "-c", code], env=environment(TMPDIR=str(tmpdir)), capture_output=True, check=True, text=True
    )
    assert len(set(done.stdout.split())) == 50


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_habit_53_the_umask_opens_nothing_and_closes_nothing(room, tmpdir, umask):
    run_default(room, tmpdir, umask=umask)
    (folder,) = (tmpdir / f"underfed-{os.geteuid()}").iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE((folder / "recording.json").stat().st_mode) & 0o077 == 0


def test_habit_53_out_that_holds_something_is_refused_before_the_start(room):
    (room.folder / "held").mkdir()
    (room.folder / "held/result.txt").write_text("mine")
    for out in ("held", "held/result.txt"):
        seen = room.plain([*room.tool, "run", "--out", out, "--", "touch", "started"])
        assert seen.returncode == 2
        assert len(seen.ours) == len(seen.stderr.splitlines()) == 1
        assert "new" in seen.ours[0]
    assert (room.folder / "held/result.txt").read_text() == "mine"
    assert not (room.folder / "started").exists()


@pytest.mark.parametrize("out", ["new", "deep/er/new", "empty", "with space\tand\u00fc", "link"])
def test_habit_53_out_that_is_new_or_empty_is_used(room, out):
    (room.folder / "empty").mkdir()
    (room.folder / "elsewhere").mkdir()
    (room.folder / "link").symlink_to("elsewhere")
    seen = room.plain([*room.tool, "run", "--out", out, "--", "true"])
    assert seen.returncode == 0
    assert (room.folder / out / "recording.json").exists()


def test_habit_53_a_link_in_the_place_of_our_parent_folder_is_not_followed(room, tmpdir):
    """In a shared /tmp anyone may plant one."""
    target = room.folder / "target"
    target.mkdir()
    (tmpdir / f"underfed-{os.geteuid()}").symlink_to(target)
    seen = run_default(room, tmpdir, "sh", "-c", "exit 5")
    assert seen.returncode == 5
    assert list(target.iterdir()) == []
    assert len(seen.ours) == 1
    assert "--out" in seen.ours[0]


@requires_root
def test_habit_53_a_parent_folder_of_somebody_else_is_not_used(room, tmpdir):
    parent = tmpdir / f"underfed-{os.geteuid()}"
    parent.mkdir(mode=0o777)
    os.chown(parent, 65534, 65534)
    seen = run_default(room, tmpdir, "sh", "-c", "exit 5")
    assert seen.returncode == 5
    assert list(parent.iterdir()) == []
    assert "somebody else" in seen.ours[0]


def test_habit_53_a_parent_folder_that_others_may_write_to_is_closed_to_them(room, tmpdir):
    parent = tmpdir / f"underfed-{os.geteuid()}"
    parent.mkdir()
    parent.chmod(0o777)
    run_default(room, tmpdir)
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700


def test_habit_35_the_header_keeps_no_value(room):
    secret = "hf_SECRETSECRET"
    python = [PY, "-W", "ignore", "-m", "json.tool"]
    command = ["env", f"TOKEN={secret}", *python, f"--key={secret}", "--token", secret, f"-p{secret}", secret]
    seen = room.under(command)
    text = (seen.recording / "recording.json").read_text()
    header = json.loads(text)
    assert header["schema"] == "underfed.recording/1"
    assert secret not in text
    assert " ".join(header["command"]) == "env … … -W … -m json.tool --key=… --token … -p… …"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        (
            ["/opt/x/bin/torchrun", "--nproc-per-node=2", "src/train.py", "--lr=1", "data/x.py"],
            "torchrun --nproc-per-node=… src/train.py --lr=… …",
        ),
        (["python", "-c", "import secret"], "python -c …"),
        (["python", "-m", "pkg.train", "-m", "x"], "python -m pkg.train -m …"),
        (["bash", "job.sh", "lr=0.1", "--", "-1", "--1x", "=", ""], "bash job.sh … -- … … … …"),
        ([], ""),
    ],
)
def test_habit_35_redaction(command, kept):
    assert " ".join(redacted(command)) == kept


@pytest.mark.skipif(not can("setpriv", "--help"), reason="needs setpriv")
@requires_root
def test_habit_54_without_any_privilege(room):
    """An ordinary user, no capability, no way to gain one; ptrace is denied with that."""
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]
    drop += ["--bounding-set=-all", "--inh-caps=-all"]
    if not can(*drop, *room.tool, "--version"):
        pytest.skip("this Python cannot be reached by another user")
    script = "id -u; grep CapEff /proc/self/status; exit 6"
    with tempfile.TemporaryDirectory() as tmp:  # pytest's own folder is closed to others
        os.chmod(tmp, 0o1777)
        seen = room.plain([*drop, *room.tool, "run", "--", "sh", "-c", script], env=environment(TMPDIR=tmp), cwd="/")
        assert (seen.returncode, seen.stdout) == (6, b"65534\nCapEff:\t0000000000000000\n")
        (header,) = Path(tmp).glob("underfed-65534/*/recording.json")
        assert header.stat().st_uid == 65534
        (closed := Path(tmp) / "closed").mkdir(mode=0o700)
        seen = room.plain([*drop, *room.tool, "run", "--", str(closed / "x")], env=environment(TMPDIR=tmp), cwd="/")
        assert seen.returncode == 126
        assert len(seen.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "code"), [(["sh", "-c", "exit 5"], 5), (["no-such-command"], 127), ([os.devnull], 126)]
)
def test_habit_55_other_platforms_run_the_command_as_it_is(room, words, code):
    """`sys.platform` is all that tells them apart before anything of Linux is touched."""
    outer = [
        PY,
        "-c",
        "import sys; sys.platform = 'darwin'; from underfed.cli import main; sys.exit(main(sys.argv[1:]))",
    ]
    seen = room.plain([*outer, "run", "--", *words])
    assert seen.returncode == code
    assert "Linux only" in seen.ours[0]
    assert len(seen.stderr.splitlines()) == len(seen.ours) == (1 if code == 5 else 2)


def test_habit_56_from_a_notebook_cell(room):
    """`!underfed run ...` is a command whose stdin is nobody, below a process that has no terminal."""
    code = (
        "import subprocess, sys\np = subprocess.Popen(sys.argv[1:], stdout=-1, stderr=-2, start_new_session=True)\n"
        "lines = p.communicate()[0].decode().splitlines()\n"
        "print([line for line in lines if not line.startswith('underfed')], p.returncode)\n"
    )
    outer = [PY, "-c", code]
    command = [PY, "-c", "print('cell'); raise SystemExit(4)"]
    assert room.plain([*outer, *room.prefix(), *command]).stdout == room.plain([*outer, *command]).stdout

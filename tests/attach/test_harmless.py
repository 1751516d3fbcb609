"""The run that is looked at is never changed, whatever happens to it or to the look."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attach_help import PLAIN, UNDERFED, attach, script, started, state


def samplers_of(pid: int) -> list[str]:
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            words = Path(folder, "cmdline").read_bytes().split(b"\0")
            if b"record" in words and str(pid).encode() in words:
                found.append(folder)
    return found


def test_signals_output_and_exit_code_are_as_without_a_look(tmp_path: Path) -> None:
    before = set(glob.glob("/tmp/*")) | set(os.listdir("/dev/shm"))
    with started(script("own_signals")) as process:
        looking = subprocess.Popen([*UNDERFED, "attach", str(process.pid), "--seconds", "3"], stdout=subprocess.DEVNULL)
        time.sleep(2)
        os.kill(process.pid, signal.SIGUSR1)
        assert looking.wait() == 0
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 7
        # nothing but what the test itself sent ever reached it
        assert process.said() == "ready\nsignals SIGUSR1 SIGHUP SIGTERM\n"
    left = (set(glob.glob("/tmp/*")) | set(os.listdir("/dev/shm"))) - before
    assert not [name for name in left if "underfed" in name or "py-spy" in name]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_look_that_is_killed_leaves_the_run_as_it_was(how: signal.Signals) -> None:
    with started(PLAIN) as process:
        looking = subprocess.Popen([*UNDERFED, "attach", str(process.pid), "--seconds", "2"], stdout=subprocess.DEVNULL)
        time.sleep(1.5)
        looking.send_signal(how)
        looking.wait()
        time.sleep(0.5)
        assert process.poll() is None
        assert state(process.pid) in "SR"
        assert not samplers_of(process.pid), "a sampler outlived the look"
        assert "TracerPid:\t0\n" in Path(f"/proc/{process.pid}/status").read_text()


def test_ctrl_c_ends_the_look_with_a_verdict_so_far() -> None:
    with started(script("own_signals")) as process:
        looking = subprocess.Popen(
            [*UNDERFED, "attach", str(process.pid), "--seconds", "600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert "looking at" in looking.stderr.readline()
        time.sleep(4)
        os.killpg(looking.pid, signal.SIGINT)
        out, err = looking.communicate()
        assert looking.returncode == 0, err
        assert "Traceback" not in err
        assert "stopped by Ctrl-C" in out
        assert out.startswith("underfed: ")
        assert process.poll() is None
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait() == 7
        assert process.said() == "ready\nsignals SIGTERM\n"


def test_a_run_that_ends_within_the_window_is_told() -> None:
    with started(
        [sys.executable, "-c", "import time\nprint('ready', flush=True)\nfor _ in range(400): time.sleep(0.01)"]
    ) as p:
        seen = attach(p.pid, "--seconds", 60)
        assert seen.code == 0, seen.err
        assert p.wait() == 0
    assert seen.data["live"]["ended"] == "exit"
    assert seen.data["live"]["seconds"] < 60
    assert "the process ended after" in seen.out


def test_below_underfed_run_the_training_is_found_and_streams_may_be_closed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = [*UNDERFED, "run", "--window", "off", "--out", str(tmp_path / "rec"), "--"]
    with started([*words, *script("starved", "0")]) as process:
        file = tmp_path / "seen.json"
        look = " ".join([*UNDERFED, "attach", str(process.pid), "--seconds", "2", "--json", str(file), ">&-", "2>&-"])
        assert subprocess.run(["sh", "-c", look], check=False).returncode == 0
        seen = json.loads(file.read_text())
    roles = [each["role"] for each in seen["live"]["processes"]]
    assert roles.count("launcher") == roles.count("rank") == 1
    assert seen["verdict"]["bound"] == "data"


def cpu_group(limit_us: int) -> Path | None:
    """Make a control group with a CPU quota (version 2 or 1); None where this machine does not let us."""
    for top, file, text in (
        ("/sys/fs/cgroup", "cpu.max", f"{limit_us} 100000"),
        ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", str(limit_us)),
    ):
        folder = Path(top) / f"underfed-test-{os.getpid()}"
        if not (Path(top) / "cgroup.procs").exists():
            continue  # an ordinary folder, or none
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / file).write_text(text)
        except OSError:
            folder.rmdir()
            continue
        return folder
    return None


@pytest.mark.alone
def test_a_run_that_its_quota_stops_is_throttled() -> None:
    pytest.importorskip("torch")
    folder = cpu_group(50_000)
    if folder is None:
        pytest.skip("this machine lets us make no control group with a CPU quota")
    try:
        with started(script("threads")) as process:
            (folder / "cgroup.procs").write_text(str(process.pid))
            time.sleep(0.5)
            seen = attach(process.pid, "--seconds", 3)
            assert seen.code == 0, seen.err
            assert seen.head == "throttled"
            assert seen.verdict["cause"] == "T3"
            assert seen.data["live"]["host"]["throttled"] > 0.25
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)


def test_python_without_torch_makes_no_wrong_verdict() -> None:
    with started(PLAIN) as process:
        seen = attach(process.pid, "--seconds", 2)
        assert seen.code == 0
        assert seen.verdict["bound"] != "compute"
        assert seen.verdict["bound"] != "data"


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_without_permission_the_missing_right_is_named_and_no_verdict_guessed() -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not there")
    prefix = ["setpriv", "--reuid", "65534", "--clear-groups"]
    probe = subprocess.run([*prefix, *UNDERFED, "--version"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("another user cannot start this Python")
    with started(PLAIN) as process:
        seen = attach(process.pid, "--seconds", 2, prefix=prefix)
        assert seen.code == 0, seen.err
        assert seen.verdict["bound"] == "unknown"
        (line,) = [limit for limit in seen.data["limits"] if limit.startswith("no stacks")]
        assert f"sudo underfed attach {process.pid}" in line
        assert "main thread used" in seen.text


def test_without_pyspy_one_line_says_what_to_install(tmp_path: Path) -> None:
    # a Python of its own that sees our packages, but whose scripts folder and PATH hold no py-spy
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    (packages,) = (tmp_path / "bare" / "lib").glob("python3*/site-packages")
    (packages / "ours.pth").write_text("\n".join(path for path in sys.path if path))
    python = str(tmp_path / "bare" / "bin" / "python")
    with started(PLAIN) as process:
        done = subprocess.run(
            [python, "-m", "underfed", "attach", str(process.pid), "--seconds", "1"],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/nowhere"},
        )
    assert done.returncode == 0, done.stderr
    assert "pip install" in done.stdout
    assert "cannot tell" in done.stdout

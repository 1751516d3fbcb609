"""The process tree against real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import trees

from underfed.observe.host.tree import Process, Tree, process_tree, queue_wait


def _until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def _pids(found: list[Process]) -> set[int]:
    return {process.pid for process in found}


def test_children_and_grandchildren_and_no_others() -> None:
    other = subprocess.Popen(["sleep", "60"])
    shell = subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; sh -c 'sleep 60 & echo $!; wait' & wait"], stdout=subprocess.PIPE
    )
    try:
        assert shell.stdout is not None
        sleeping = {int(shell.stdout.readline()) for _ in range(2)}
        # a child is a copy of its shell until it starts its own program
        _until(lambda: {each.comm for each in process_tree(shell.pid) if each.pid in sleeping} == {"sleep"})
        found = process_tree(shell.pid)
        assert (
            sleeping | {shell.pid} <= _pids(found) and other.pid not in _pids(found) and os.getpid() not in _pids(found)
        )
        assert all(process.start_ms > 0 and process.threads == 1 and process.rss > 0 for process in found)
    finally:
        for pid in _pids(process_tree(shell.pid)):
            os.kill(pid, signal.SIGKILL)
        other.kill()
        shell.wait(), other.wait()


def test_one_whose_parent_ended_first_stays() -> None:
    code = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); sys.stdin.read()"
    outer = subprocess.Popen(
        ["sh", "-c", f'{sys.executable} -c "{code}"; sleep 60'], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert outer.stdout is not None and outer.stdin is not None
    orphan = int(outer.stdout.readline())
    try:
        follows = Tree(outer.pid)
        assert orphan in _pids(follows.read())
        outer.stdin.close()
        _until(lambda: all(process.ppid != outer.pid or process.comm == "sleep" for process in process_tree(outer.pid)))
        _until(lambda: orphan not in _pids(process_tree(outer.pid)))
        assert orphan in _pids(follows.read())
    finally:
        for pid in {orphan, *_pids(process_tree(outer.pid))}:
            os.kill(pid, signal.SIGKILL)
        outer.wait()


def test_work_stops_and_zombies_are_seen() -> None:
    code = (
        "import time, threading\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nwhile True: pass"
    )
    child = subprocess.Popen([sys.executable, "-c", code])

    def now() -> Process:
        return process_tree(child.pid)[0]

    try:
        _until(lambda: now().utime_ms >= 50 and now().threads == 2)
        busy = now()
        assert busy.affinity == len(os.sched_getaffinity(0)) and busy.majflt >= 0
        assert busy.run_ns is None or busy.run_ns > 10_000_000
        assert busy.rchar is None or busy.rchar > 1000
        waited = queue_wait(child.pid)
        assert waited is None or waited[0] > 10_000_000
        child.send_signal(signal.SIGSTOP)
        _until(lambda: now().state == "T")
        os.kill(child.pid, signal.SIGKILL)
        _until(lambda: now().state == "Z")
        assert now().affinity is None or now().affinity > 0
    finally:
        child.kill()
        child.wait()
    assert process_tree(child.pid) == [] and queue_wait(child.pid) is None


def test_a_name_with_brackets_and_blanks(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    odd = tmp_path / "a) R 1 (b"
    shutil.copy(sleep, odd)
    child = subprocess.Popen([odd, "60"])
    try:
        _until(lambda: process_tree(child.pid)[0].comm == "a) R 1 (b")
        assert process_tree(child.pid)[0].ppid == os.getpid()
    finally:
        child.kill()
        child.wait()


def _stat(pid: int, ppid: int, start: int) -> str:
    return f"{pid} (python3) S {ppid} 1 1 0 -1 4194304 900 0 12 0 250 31 0 0 20 0 17 0 {start} 9000000 5000 1844\n"


def test_a_recorded_tree_and_a_pid_used_again(tmp_path: Path) -> None:
    io = "rchar: 5000\nwchar: 1\nsyscr: 2\nsyscw: 0\nread_bytes: 4096\nwrite_bytes: 0\ncancelled_write_bytes: 0\n"
    root = trees.write(
        tmp_path,
        {
            "proc/10/stat": _stat(10, 1, 100),
            "proc/10/io": io,
            "proc/10/schedstat": "7000 900 12\n",
            "proc/10/status": trees.status("0-3"),
            "proc/11/stat": _stat(11, 10, 110),
            "proc/12/stat": _stat(12, 1, 120),
        },
    )
    follows = Tree(10, root)
    first, second = follows.read()
    tick = 1000 // os.sysconf("SC_CLK_TCK")
    assert (first.utime_ms, first.stime_ms, first.majflt, first.threads) == (250 * tick, 31 * tick, 12, 17)
    assert (first.rchar, first.read_bytes, first.run_ns, first.wait_ns, first.affinity) == (5000, 4096, 7000, 900, 4)
    assert (second.pid, second.rchar, second.wait_ns, second.affinity) == (11, None, None, None)
    # 11 ends and another program of somebody else's gets its number
    trees.write(root, {"proc/11/stat": _stat(11, 1, 999)})
    assert _pids(follows.read()) == {10}
    trees.write(root, {"proc/10/stat": _stat(10, 1, 777)})
    assert follows.read() == []

"""The sampler beside a real process: what it writes, what it keeps to itself, and how it stops."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from underfed.observe.host.sampler import FILE, HostSampler


def _lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_the_box_comes_first_and_counters_go_on(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(1, flush=True); subprocess.run([sys.executable, '-c', 'while True: pass'])"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    sampler = HostSampler(child.pid, tmp_path, gpu=False)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"1\n"
        before = time.time_ns()
        for _ in range(3):
            assert sampler.sample()
            time.sleep(0.4)
    finally:
        for process in _lines(tmp_path)[-1]["tree"]:
            os.kill(process["pid"], 9)
        child.wait()
    box, *samples = _lines(tmp_path)
    assert box["k"] == "box" and box["cpu"]["affinity"] == len(os.sched_getaffinity(0)) and box["mem"]["total"] > 0
    assert [line["k"] for line in samples] == ["host"] * 3
    assert before <= samples[0]["t_ns"] < samples[1]["t_ns"] < samples[2]["t_ns"] <= time.time_ns()
    assert samples[0]["tree"][0]["pid"] == child.pid and len(samples[2]["tree"]) == 2
    work = [sum(process["utime_ms"] for process in line["tree"]) for line in samples]
    assert work[0] <= work[1] <= work[2] and work[2] > work[0]
    assert set(samples[0]["cpu"]) >= {"quota", "nr_periods", "nr_throttled", "throttled_us", "load1"}
    # the process is gone: no error
    assert sampler.sample() and sampler.off is None
    assert child.pid not in {process["pid"] for process in _lines(tmp_path)[-1]["tree"]}
    sampler.close()
    assert sampler.off == "closed" and not sampler.sample() and sampler.poll() >= 0


def test_nothing_private_is_written(tmp_path: Path) -> None:
    secret, inside = "s3cr3tW0rd", tmp_path / "s3cr3tW0rd-folder"
    inside.mkdir()
    environment = {**os.environ, "TOKEN": secret}
    child = subprocess.Popen(["sleep", "60", "60.0", "1"], env=environment, cwd=inside)
    out = tmp_path / "out"
    out.mkdir()
    try:
        assert HostSampler(child.pid, out).sample()
    finally:
        child.kill()
        child.wait()
    text = (out / FILE).read_text()
    assert secret not in text and "60.0" not in text and str(tmp_path) not in text
    assert os.uname().nodename not in json.dumps([line["tree"] for line in _lines(out) if line["k"] == "host"])
    assert '"cwd":{"fs":' in text


def test_a_lost_folder_turns_it_off(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    sampler = HostSampler(os.getpid(), out, gpu=False)
    assert sampler.sample()
    shutil.rmtree(out)
    assert not sampler.sample() and sampler.off is not None and "FileNotFoundError" in sampler.off
    assert not out.exists()
    never = HostSampler(os.getpid(), tmp_path / "never", gpu=False)
    assert never.off is not None and not never.sample()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk takes root")
def test_a_full_disk_turns_it_off_and_leaves_whole_lines(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "small", disk], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        sampler = HostSampler(os.getpid(), disk, gpu=False)
        written = sum(sampler.sample() for _ in range(100))
        assert 0 < written < 100 and sampler.off is not None and "full" in sampler.off.lower() + "No space".lower()
        whole, _, _ = (disk / FILE).read_bytes().rpartition(b"\n")
        kinds = [json.loads(line)["k"] for line in whole.splitlines()]
        assert kinds == ["box"] + ["host"] * written
    finally:
        subprocess.run(["umount", disk], check=True)


def test_polling_keeps_to_its_interval(tmp_path: Path) -> None:
    sampler = HostSampler(os.getpid(), tmp_path, every=3600, gpu=False)
    left = [sampler.poll() for _ in range(5)]
    assert len(_lines(tmp_path)) == 2 and all(0 < wait <= 3600 for wait in left)


def test_another_cgroup_tree_is_followed(tmp_path: Path) -> None:
    import trees

    root = trees.container_v2(tmp_path / "root")
    own = {name: (root / "proc/self" / name).read_text() for name in ("cgroup", "mountinfo", "status")}
    trees.write(root, {f"proc/70/{name}": content for name, content in own.items()})
    trees.write(root, {"sys/fs/cgroup/job/cpu.max": "150000 100000\n"})
    sampler = HostSampler(70, tmp_path, root=root, gpu=False)
    assert sampler.sample()
    trees.write(root, {"proc/70/cgroup": "0::/job\n"})
    assert sampler.sample()
    assert [line["cpu"]["quota"] for line in _lines(tmp_path)] == [4.0, 4.0, 1.5]


def test_importing_it_loads_no_heavy_library() -> None:
    code = "import sys, underfed.observe.host.sampler; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "msgspec", "pynvml", "dataclasses", "rich", "psutil", "torch"} & set(loaded)

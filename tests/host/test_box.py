"""The box: this machine for real, recorded machines with known faults, and the page they give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trees
from msgspec.structs import replace

from underfed.observe.host.box import records as r
from underfed.observe.host.box.advice import advise, size
from underfed.observe.host.box.gather import gather
from underfed.observe.host.box.installed import read_version
from underfed.observe.host.box.probe import probe
from underfed.observe.host.box.ptrace import ptrace
from underfed.observe.host.box.show import WIDTH, text

GIB = 1 << 30
H200 = {
    "device": 0, "name": "NVIDIA H200", "memory": 150754820096, "max_sm_mhz": 1980, "limit_w": 700.0,
    "default_limit_w": 700.0,
    "pcie_gen_max": 5, "pcie_width_max": 16, "mig": False, "persistence": True, "gpm_supported": True,
    "processes": 1, "utilization": 99,
    "mem_utilization": 23, "sm_mhz": 1470, "mem_mhz": 3201, "power_w": 693.0, "temp_c": 55, "throttle": 4,
    "mem_used": 1704853504,
    "pcie_gen": 5, "pcie_width": 16, "reasons": ["power cap"], "gpm": {"sm": 95.4, "tensor": 92.6, "dram": None},
}  # fmt: skip
HEALTHY = r.Box(
    cpu=r.Cpu(
        visible=16, affinity=16, quota=None, quota_known=True, usable=16.0, limited_by="visible",
        source="cpus online", cores=16,
        threads=16, omp_num_threads=None, periods=0, throttled_periods=0, throttled_ms=0.0, load1=0.16, stolen=0.0,
    ),
    memory=r.Ram(total=126 * GIB, available=120 * GIB, limit=None, used=GIB, cache=0, oom_kills=0),
    shm=r.Room(total=64 * GIB, free=64 * GIB, inodes=None, inodes_free=None),
    storage=[
        r.Storage(
            folder="this folder", path="/data", fs="ext4", source="/dev/vda", network=False, read_only=False,
            room=r.Room(total=100 * GIB, free=64 * GIB, inodes=2**24, inodes_free=2**23), skipped=None,
            probe=r.Probe(
                bytes=8 << 20, write_mb_s=972.0, read_mb_s=1232.0, read_cached=None, small_files=32,
                small_write_ms=0.16,
                small_read_ms=0.05,
            ),
        )
    ],
    gpu={"driver": "580.159.04", "cuda": "13.0", "reason": None, "devices": [H200]},
    pressure=r.Stall(cpu=0.0, io=0.03, memory=0.0),
    ptrace=r.Ptrace(reach="any", scope=None, capability=True, seccomp=False, blocked=False),
    torch=r.Torch(version="2.11.0+cu130", cuda="13.0"),
    open_files=20000,
    container=None,
)  # fmt: skip


def _device(**changes: Any) -> dict[str, Any]:
    return {**HEALTHY.gpu, "devices": [{**H200, **changes}]}


def _store(**changes: Any) -> list[r.Storage]:
    return [replace(HEALTHY.storage[0], **changes)]


def test_a_healthy_h200_under_full_load_draws_no_alarm() -> None:
    assert advise(HEALTHY) == []
    assert "Nothing to fix" in text(HEALTHY)


CPU = HEALTHY.cpu
FAULTS = [
    ({"cpu": replace(CPU, quota=4.0, usable=4.0, limited_by="quota")}, "U40", "the quota is 4: torch starts 16",
         "OMP_NUM_THREADS=4"),
    ({"cpu": replace(CPU, quota=0.5, usable=0.5, limited_by="quota")}, "U40", "the quota is 0.5",
         "OMP_NUM_THREADS=1 "),
    ({"cpu": replace(CPU, affinity=3, usable=3.0, limited_by="affinity")}, "U40", "may run on 3",
         "sched_getaffinity"),
    ({"cpu": replace(CPU, periods=100, throttled_periods=35)}, "U40", "35% of its periods", "fewer threads"),
    ({"cpu": replace(CPU, stolen=0.2)}, None, "took 20%", "oversold"),
    ({"memory": replace(HEALTHY.memory, oom_kills=2)}, "U9", "killed a process of this group for memory 2 times",
         "num_workers"),
    ({"memory": replace(HEALTHY.memory, limit=16 * GIB)}, "U9", "limit is 16 GiB, programs see 126 GiB", "16 GiB"),
    ({"memory": replace(HEALTHY.memory, limit=16 * GIB, used=15 * GIB)}, "U9", "94% of the memory limit",
         "end what holds"),
    ({"shm": r.Room(total=64 << 20, free=64 << 20, inodes=None, inodes_free=None)}, None, "64 MiB", "--shm-size"),
    ({"storage": _store(network=True, fs="nfs4")}, "U8", "is on nfs4", "copy the dataset to a local disk"),
    ({"storage": _store(room=r.Room(total=GIB, free=GIB, inodes=9, inodes_free=None))}, None, "1 GiB left",
         "checkpoint"),
    ({"storage": _store(room=r.Room(total=GIB, free=99 * GIB, inodes=200000, inodes_free=900))}, "U25",
         "900 inodes left", "archives"),
    ({"storage": _store(probe=None, skipped="writing fails: disk quota exceeded")}, None, "quota exceeded",
         "free room"),
    ({"gpu": _device(throttle=0x40, sm_mhz=900)}, "U23", "900 of 1980 MHz: thermal", "provider"),
    ({"gpu": _device(power_w=300.0)}, "U23", "1470 of 1980 MHz: power cap", "provider"),
    ({"gpu": _device(limit_w=400.0, power_w=399.0)}, "U23", "limited to 400 W, its default is 700 W",
         "nvidia-smi -pl 700"),
    ({"gpu": _device(pcie_width=4)}, None, "4 of 16 PCIe lanes", "slot"),
    ({"gpu": _device(mem_used=20 * GIB, processes=0)}, "U10", "20 GiB of GPU 0's memory is in use by no process",
         "shares"),
    ({"gpu": _device(mig=True)}, None, "MIG", "slice"),
    ({"gpu": {**HEALTHY.gpu, "cuda": "12.4"}}, "U28", "built for CUDA 13.0", "CUDA 12"),
    ({"torch": r.Torch(version="2.11.0+cpu", cuda=None)}, "U28", "without CUDA", "install torch"),
    ({"pressure": r.Stall(cpu=0.4)}, None, "40% of the last 10 s", "measure only"),
    ({"ptrace": replace(HEALTHY.ptrace, reach="children", scope=1)}, "T21", "only of processes that it started",
         "ptrace_scope=0"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "rule", "says", "fix"), FAULTS, ids=[row[2] for row in FAULTS])
def test_each_fault_is_named_once_with_what_to_do(fault: dict[str, Any], rule: str | None, says: str, fix: str) -> None:
    found = advise(replace(HEALTHY, **fault))
    assert [each.rule for each in found] == [rule]
    assert says in found[0].text and fix in found[0].fix


def test_a_minor_version_of_cuda_is_no_mismatch() -> None:
    assert advise(replace(HEALTHY, torch=r.Torch(version="2.9", cuda="13.2"))) == []


def test_the_page_stays_narrow_and_shows_no_control_characters() -> None:
    evil = "/data/\x1b]0;owned\x07" + "x" * 300
    box = replace(HEALTHY, storage=_store(path=evil, network=True))
    page = text(replace(box, findings=tuple(advise(box))))
    assert max(len(line) for line in page.splitlines()) <= WIDTH
    assert "\x1b" not in page and "\x07" not in page
    assert "693 of 700 W" in page and "580.159.04" in page and "SM 95.4 %, tensor 92.6 %\n" in page


def test_json_reads_back() -> None:
    data = r.to_json(replace(HEALTHY, findings=(r.Advice(rule=None, text="a", fix="b"),)))
    assert json.loads(data)["schema"] == "underfed.box/1"
    assert msgspec.json.decode(data, type=r.Box).findings[0].text == "a"


def test_a_recorded_container(tmp_path: Path) -> None:
    box = gather({"here": tmp_path}, root=trees.docker_v1(tmp_path / "root"), write=False)
    assert (box.cpu.usable, box.cpu.affinity, box.cpu.throttled_periods, box.memory.oom_kills) == (7.65, 96, 40, 3)
    assert box.container == "docker" and box.storage[0].skipped == "not asked for" and box.shm is None
    rules = [each.rule for each in advise(box)]
    assert "U40" in rules and "U9" in rules
    assert "7.65 usable" in text(box)


def test_a_tree_that_tells_nothing(tmp_path: Path) -> None:
    box = gather({"gone": tmp_path / "gone"}, root=tmp_path)
    assert box.cpu.usable is None and box.storage[0].skipped == "not there" and box.ptrace.reach is None
    assert "not known" in text(box)


def test_the_probe_measures_and_leaves_nothing(tmp_path: Path) -> None:
    found = probe(tmp_path, "ext4")
    assert isinstance(found, r.Probe) and found.bytes == 8 << 20 and found.small_files == 32
    assert found.write_mb_s is not None and found.read_mb_s is not None and min(found.write_mb_s, found.read_mb_s) > 0
    assert list(tmp_path.iterdir()) == []
    assert "writing fails" in str(probe(tmp_path / "gone", None))


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk takes root")
@pytest.mark.parametrize(("options", "says"), [("size=1m", "no space left"), ("ro", "not writable")])
def test_a_disk_that_takes_nothing(tmp_path: Path, options: str, says: str) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", tmp_path], check=False).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        assert says in str(probe(tmp_path, "tmpfs"))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("scope", "caps", "reach"),
    [
        (None, "0", "user"),
        ("0", "0", "user"),
        ("1", "0", "children"),
        ("1", "0000000000080000", "any"),
        ("2", "0", "none"),
        ("2", "80000", "any"),
        ("3", "80000", "none"),
        (None, "not hex", "user"),
    ],
)
def test_ptrace(tmp_path: Path, scope: str | None, caps: str, reach: str) -> None:
    root = trees.write(tmp_path, {"proc/self/status": trees.status(caps=caps)})
    if scope is not None:
        trees.write(root, {"proc/sys/kernel/yama/ptrace_scope": scope + "\n"})
    assert ptrace(root).reach == reach


def test_torch_is_read_without_running_it(tmp_path: Path) -> None:
    file = tmp_path / "version.py"
    file.write_text(
        "from typing import Optional\n__version__ = '2.8.0+cu128'\ncuda: Optional[str] = '12.8'\nraise SystemExit\n"
    )
    assert read_version(file) == r.Torch(version="2.8.0+cu128", cuda="12.8")
    file.write_text("cuda = \x00")
    assert read_version(file) is None and read_version(tmp_path / "none") is None


def test_sizes() -> None:
    assert [size(n) for n in (0, 1023, 64 << 20, 3 * GIB // 2, 126 * GIB, 1 << 41)] == [
        "0 B",
        "1023 B",
        "64 MiB",
        "1.5 GiB",
        "126 GiB",
        "2 TiB",
    ]


def _command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "underfed", "box", *words], capture_output=True, text=True, cwd=cwd, check=False
    )


def test_the_command_on_this_machine(tmp_path: Path) -> None:
    done = _command("--json", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    box = msgspec.json.decode(done.stdout, type=r.Box)
    assert box.schema == "underfed.box/1" and box.cpu.affinity == len(os.sched_getaffinity(0))
    assert box.storage[0].path == str(tmp_path.resolve()) and box.storage[0].probe is not None
    page = _command(cwd=tmp_path)
    assert page.returncode == 0 and max(len(line) for line in page.stdout.splitlines()) <= WIDTH
    assert list(tmp_path.iterdir()) == []

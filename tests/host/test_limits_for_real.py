"""Limits that the kernel enforces: a group is made, a child put into it, and what is read must be what happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from underfed.observe.host import cpu, memory
from underfed.observe.host.mounts import mounts

BURN = """
import json, multiprocessing, os, sys, time
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
from underfed.observe.host import cpu
from underfed.observe.host.cgroup import groups
def burn(seconds):
    end = time.time() + seconds
    while time.time() < end:
        pass
def counted():
    held = groups()
    return tuple(cpu.throttle(held, cpu.quota(held)))
before = counted()
for _ in range(20):  # on a busy machine the group may not get its quota for a while
    many = [multiprocessing.Process(target=burn, args=(1.5,)) for _ in range(4)]
    [one.start() for one in many], [one.join() for one in many]
    if counted()[1] > before[1]:
        break
print(json.dumps([cpu.effective_cpus()._asdict(), before, counted()]))
"""

EAT = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
pid = os.fork()
if pid == 0:
    kept = [bytearray(os.urandom(1 << 20)) for _ in range(400)]
    os._exit(0)
os.waitpid(pid, 0)
from underfed.observe.host.cgroup import groups
from underfed.observe.host.memory import memory
import json
print(json.dumps(memory(groups())._asdict()))
"""


@contextmanager
def _group(controller: str, v1: dict[str, str], v2: dict[str, str], inner: bool = False) -> Iterator[Path]:
    """Make a group with a limit, and one without a limit inside it; skips where that is not possible."""
    if os.getuid() != 0:
        pytest.skip("making a control group takes root")
    tops = [(Path(mount.point), mount.fs == "cgroup2") for mount in mounts() if mount.fs in {"cgroup", "cgroup2"}]
    for top, second in tops:
        held = top / "cgroup.subtree_control" if second else top / next(iter(v1))
        if not held.exists() or (second and controller not in held.read_text().split()):
            continue
        made = [top / f"underfed-test-{os.getpid()}"]
        try:
            made[0].mkdir()
        except OSError:
            continue
        try:
            if inner:
                made.append(made[0] / "inner")
                made[1].mkdir()
            for name, value in (v2 if second else v1).items():
                (made[0] / name).write_text(value)
            yield made[-1]
        finally:
            for folder in reversed(made):
                folder.rmdir()
        return
    pytest.skip(f"no {controller} hierarchy here in which a group can be made")


def _run(code: str, group: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, str(group)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inner", [False, True])
def test_a_cpu_quota_is_seen_and_its_throttling_counted(inner: bool) -> None:
    with _group("cpu", {"cpu.cfs_quota_us": "50000"}, {"cpu.max": "50000 100000"}, inner) as group:
        done = _run(BURN, group)
    assert done.returncode == 0, done.stderr
    found, before, after = json.loads(done.stdout)
    assert (found["quota"], found["usable"], found["limited_by"]) == (0.5, 0.5, "quota")
    assert found["source"].endswith("1 level above the own group" if inner else "own group")
    assert after[1] > before[1] and after[2] > before[2]
    assert cpu.effective_cpus().quota != 0.5


def test_a_memory_limit_is_seen_and_its_kill_counted() -> None:
    limit = str(96 << 20)
    with _group("memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit, "memory.swap.max": "0"}) as group:
        done = _run(EAT, group)
    assert done.returncode == 0, done.stderr
    found = memory.Memory(**json.loads(done.stdout))
    assert found.limit == 96 << 20 and found.oom_kills == 1
    assert found.used is not None and 0 < found.used <= found.limit

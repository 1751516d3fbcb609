"""Memory, pressure and mounts: recorded trees, and this machine against its system calls."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from underfed.observe.host import cpu, files, memory, mounts, pressure, tree
from underfed.observe.host.cgroup import groups

HOST_MOUNTS = (
    trees.ROOT_MOUNT
    + "40 25 0:41 / /mnt/my\\040data rw,relatime - nfs4 10.0.0.5:/export rw,vers=4.2\n"
    + "41 25 0:42 / /mnt rw - fuse.s3fs s3fs rw\n"
    + "42 25 0:43 / /odd rw - fuse.unheard-of thing rw\n"
    + "43 25 0:44 / /two rw - ext4 /dev/sda1 rw\n"
    + "44 43 0:45 / /two rw - xfs /dev/sdb1 ro\n"
    + "not a mount\n99\n"
)


@pytest.mark.parametrize(
    ("path", "fs", "network"),
    [
        ("/home/a", "ext4", False),
        ("/mnt/my data/set", "nfs4", True),
        ("/mnt/my database", "fuse.s3fs", True),
        ("/odd", "fuse.unheard-of", None),
        ("/oddly", "ext4", False),
        ("/two/x", "xfs", False),
    ],
)
def test_mount_of_a_path(tmp_path: Path, path: str, fs: str, network: bool | None) -> None:
    known = mounts.mounts(trees.write(tmp_path, {"proc/self/mountinfo": HOST_MOUNTS}))
    assert len(known) == 6
    found = mounts.mount_of(path, known)
    assert found is not None and (found.fs, found.network) == (fs, network)
    assert found.read_only is (path == "/two/x")


def test_unknown_types_whose_source_names_a_host() -> None:
    assert mounts.is_network("newfs", "store:/export") is True
    assert mounts.is_network("newfs", "//store/share") is True
    assert mounts.is_network("newfs", "/dev/x:y/z") is None


def test_an_open_file_is_found_with_its_mount(tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir():
        pytest.skip("no /dev/shm here")
    with (tmp_path / "here").open("w"), tempfile.NamedTemporaryFile(dir=shared) as there:
        found = {each.path: each.mount for each in mounts.open_files(os.getpid()) or []}
        near, far = found[str(tmp_path / "here")], found[there.name]
    assert near is not None and far is not None and far.fs == "tmpfs" and far.point == "/dev/shm"
    major, minor = (int(word) for word in far.device.split(":"))
    assert os.stat(shared).st_dev == os.makedev(major, minor)
    assert mounts.open_files(2**22 + 1) is None


def test_version_1_memory(tmp_path: Path) -> None:
    root = trees.docker_v1(tmp_path)
    found = memory.memory(groups(root), root)
    assert found == memory.Memory(528216860 * 1024, 480224000 * 1024, 50 * 10**9, 21 * 10**9, 8 * 10**9, 3)
    trees.write(root, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"})
    assert memory.memory(groups(root), root).limit is None


def test_version_2_memory_takes_the_tightest_and_counts_its_own_kills(tmp_path: Path) -> None:
    pod = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/pod7.slice"
    root = trees.pod_v2(tmp_path, {})
    trees.write(
        root,
        {
            "proc/meminfo": "MemTotal: 1000000000 kB\n",
            f"{pod}/memory.max": "16000000000\n",
            f"{pod}/memory.current": "9000000000\n",
            f"{pod}/memory.stat": "anon 7\ninactive_file 4000000000\n",
            f"{pod}/memory.events": "oom_kill 9\n",
            f"{pod}/cri-1.scope/memory.max": "max\n",
            f"{pod}/cri-1.scope/memory.current": "5\n",
            f"{pod}/cri-1.scope/memory.events": "low 0\noom 1\noom_kill 1\n",
        },
    )
    found = memory.memory(groups(root), root)
    assert (found.limit, found.used, found.cache, found.oom_kills) == (16 * 10**9, 9 * 10**9, 4 * 10**9, 1)
    assert found.available is None


def test_unknown_memory_is_not_zero(tmp_path: Path) -> None:
    assert memory.memory(None, tmp_path) == memory.Memory(None, None, None, None, None, None)
    assert memory.shm(tmp_path) is None


def test_space_against_statvfs(tmp_path: Path) -> None:
    found, truth = memory.space(tmp_path), os.statvfs(tmp_path)
    assert found is not None and found.total == truth.f_blocks * truth.f_frsize
    assert found.inodes == (truth.f_files or None)


def test_pressure(tmp_path: Path) -> None:
    some = "some avg10=12.50 avg60=0.79 avg300=0.52 total=8684603\n"
    root = trees.write(
        tmp_path,
        {
            "proc/pressure/cpu": some,
            "proc/pressure/io": some + "full avg10=0.38 avg60=0.2 avg300=0.1 total=77\n",
            "proc/pressure/memory": "nonsense avg10\n",
        },
    )
    assert pressure.system_pressure(root) == {
        "cpu": pressure.Pressure(8684603, 12.5, None, None),
        "io": pressure.Pressure(8684603, 12.5, 77, 0.38),
    }
    assert pressure.system_pressure(tmp_path / "none") is None and pressure.group_pressure(None) is None
    held = groups(trees.container_v2(tmp_path / "box", sys__fs__cgroup__cpu_pressure="x"))
    assert pressure.group_pressure(held) is None
    trees.write(tmp_path / "box", {"sys/fs/cgroup/cpu.pressure": some})
    assert pressure.group_pressure(held) == {"cpu": pressure.Pressure(8684603, 12.5, None, None)}


_NAMES = (
    "proc/self/cgroup proc/self/mountinfo proc/self/status proc/7/stat proc/7/io proc/7/schedstat proc/7/status "
    "proc/meminfo proc/loadavg proc/stat proc/pressure/cpu sys/devices/system/cpu/online sys/fs/cgroup/cpu.max "
    "sys/fs/cgroup/cpu.stat sys/fs/cgroup/memory.max sys/fs/cgroup/memory.stat sys/fs/cgroup/memory.events"
)
_NOISE = st.one_of(st.binary(max_size=60), st.text("0123456789max -:,/.()R\n", max_size=60).map(str.encode))


@given(noise=st.dictionaries(st.sampled_from(_NAMES.split()), _NOISE))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_content_raises(noise: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = trees.container_v2(Path(folder))
        for name, content in noise.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        held, found = groups(root), cpu.effective_cpus(root)
        assert found.usable is None or found.usable > 0
        assert found.quota is None or found.quota > 0
        cpu.throttle(held, cpu.quota(held))
        cpu.load(root), cpu.stolen(root), cpu.cores(root)
        sizes = memory.memory(held, root)
        assert sizes.limit is None or sizes.limit >= 0 or b"-" in noise["sys/fs/cgroup/memory.max"]
        pressure.system_pressure(root)
        assert len(tree.process_tree(7, root)) <= 1


@given(st.sets(st.integers(0, 300), min_size=1))
def test_kernel_lists_against_a_plain_one(numbers: set[int]) -> None:
    assert files.list_numbers(",".join(str(number) for number in sorted(numbers))) == numbers
    assert files.list_size(f"0-{max(numbers)}") == max(numbers) + 1

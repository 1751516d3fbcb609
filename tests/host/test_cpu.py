"""CPU limits read from trees as real machines show them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trees

from underfed.observe.host import cpu
from underfed.observe.host.cgroup import groups


def test_container_quota_counts_before_visible_and_affinity(tmp_path: Path) -> None:
    found = cpu.effective_cpus(trees.container_v2(tmp_path))
    assert (found.visible, found.affinity, found.quota, found.usable) == (12, 12, 4.0, 4.0)
    assert (found.limited_by, found.source) == ("quota", "cpu.max, own group")


def test_no_quota_is_told_from_an_unknown_one(tmp_path: Path) -> None:
    none = cpu.effective_cpus(trees.container_v2(tmp_path / "a", "max 100000"))
    assert none.quota is None and none.quota_known and none.limited_by == "visible" and none.usable == 12
    root = trees.container_v2(tmp_path / "b")
    (root / "sys/fs/cgroup/cpu.max").unlink()
    unknown = cpu.effective_cpus(root)
    assert unknown.quota is None and not unknown.quota_known and unknown.usable == 12


@pytest.mark.parametrize(
    ("limits", "quota", "source"),
    [
        ({"/kubepods.slice": "1600000 100000"}, 16.0, "cpu.max, 3 levels above the own group"),
        (
            {
                "/kubepods.slice": "1600000 100000",
                "/kubepods.slice/kubepods-burstable.slice/pod7.slice": "250000 100000",
                "/kubepods.slice/kubepods-burstable.slice/pod7.slice/cri-1.scope": "max 100000",
            },
            2.5,
            "cpu.max, 1 level above the own group",
        ),
        (
            {
                "/kubepods.slice/kubepods-burstable.slice/pod7.slice": "250000 100000",
                "/kubepods.slice/kubepods-burstable.slice/pod7.slice/cri-1.scope": "25000 50000",
            },
            0.5,
            "cpu.max, own group",
        ),
    ],
)
def test_the_tightest_of_nested_quotas_wins(tmp_path: Path, limits: dict[str, str], quota: float, source: str) -> None:
    found = cpu.effective_cpus(trees.pod_v2(tmp_path, limits))
    assert (found.quota, found.usable, found.source) == (quota, quota, source)


@pytest.mark.parametrize("namespaced", [True, False])
def test_version_1_quota_and_throttling(tmp_path: Path, namespaced: bool) -> None:
    root = trees.docker_v1(tmp_path, namespaced=namespaced)
    found = cpu.effective_cpus(root)
    assert (found.visible, found.quota, found.usable) == (96, 7.65, 7.65)
    held = groups(root)
    assert cpu.throttle(held, cpu.quota(held)) == cpu.Throttle(1000, 40, 2_500_000)


def test_version_1_without_quota(tmp_path: Path) -> None:
    found = cpu.effective_cpus(trees.docker_v1(tmp_path, quota="-1"))
    assert found.quota is None and found.quota_known and found.usable == 96


def test_throttling_is_that_of_the_group_with_the_quota(tmp_path: Path) -> None:
    pod = "/kubepods.slice/kubepods-burstable.slice/pod7.slice"
    root = trees.pod_v2(tmp_path, {pod: "200000 100000"})
    counts = "nr_periods {0}\nnr_throttled {1}\nthrottled_usec {2}\n"
    trees.write(root, {f"sys/fs/cgroup{pod}/cpu.stat": counts.format(50, 20, 900)})
    trees.write(root, {f"sys/fs/cgroup{pod}/cri-1.scope/cpu.stat": counts.format(0, 0, 0)})
    held = groups(root)
    assert cpu.throttle(held, cpu.quota(held)) == cpu.Throttle(50, 20, 900)


def test_affinity_counts_where_it_is_the_tightest(tmp_path: Path) -> None:
    root = trees.container_v2(tmp_path)
    trees.write(root, {"proc/self/status": trees.status("0-1,8")})
    found = cpu.effective_cpus(root)
    assert (found.affinity, found.usable, found.limited_by) == (3, 3.0, "affinity")


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    root = trees.write(
        tmp_path, {"proc/self/status": trees.status("0-3"), "proc/stat": "cpu  1 2\ncpu0 1\ncpu1 1\nintr 5\n"}
    )
    found = cpu.effective_cpus(root)
    assert (found.visible, found.affinity, found.quota, found.quota_known, found.usable) == (2, 4, None, False, 2.0)
    assert groups(root) is None and cpu.throttle(None, None) is None


def test_an_empty_tree_knows_nothing(tmp_path: Path) -> None:
    assert cpu.effective_cpus(tmp_path) == cpu.Cpus(None, None, None, None, None, None, False)
    assert (cpu.load(tmp_path), cpu.stolen(tmp_path), cpu.cores(tmp_path)) == (None, None, None)


@pytest.mark.parametrize(
    "content",
    ["", "\x00\xff", "max", "max max max", "-5 100000", "100000 0", "1e5 100000", "٣٠٠٠٠٠ 100000", "9" * 99 + " 1"],
)
def test_garbage_is_not_known(tmp_path: Path, content: str) -> None:
    found = cpu.effective_cpus(trees.container_v2(tmp_path, content))
    assert found.quota is None and found.usable == 12


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    root = trees.container_v2(tmp_path)
    (root / "sys/fs/cgroup/cpu.max").unlink()
    (root / "sys/fs/cgroup/cpu.max").mkdir()
    assert cpu.effective_cpus(root).quota_known is False


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without permission")
def test_missing_permission_is_not_known() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = trees.container_v2(Path(folder))
        root.chmod(0o755)
        (root / "sys/fs/cgroup/cpu.max").chmod(0)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, repr(tuple(cpu.effective_cpus(root))).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            assert answer.read() == "(12, 12, None, 12.0, 'visible', 'cpus online', False)"


def test_paths_outside_the_namespace_fall_back_to_the_mount(tmp_path: Path) -> None:
    root = trees.container_v2(tmp_path)
    trees.write(root, {"proc/self/cgroup": "0::/../../other\n"})
    assert cpu.effective_cpus(root).quota == 4.0


def test_a_group_whose_name_only_starts_like_the_mounts(tmp_path: Path) -> None:
    root = trees.docker_v1(tmp_path)
    trees.write(root, {"proc/self/cgroup": "4:cpu,cpuacct:/docker/4f6c2e77/deep\n"})
    held = groups(root)
    assert held is not None and held.cpu == (f"{root}/sys/fs/cgroup/cpu,cpuacct",)


def test_hyperthreads_share_a_core(tmp_path: Path) -> None:
    root = trees.write(tmp_path, {"proc/self/status": trees.status("0-3")})
    for number, pair in enumerate(("0,2", "1,3", "0,2", "1,3")):
        trees.write(root, {f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": pair + "\n"})
    assert cpu.cores(root) == 2
    (root / "sys/devices/system/cpu/cpu3/topology/thread_siblings_list").unlink()
    assert cpu.cores(root) is None


def test_stolen_time_counts_all_eight_columns_once(tmp_path: Path) -> None:
    root = trees.write(tmp_path, {"proc/stat": "cpu  100 1 20 800 5 0 4 70 33 2\ncpu0 1\n"})
    assert cpu.stolen(root) == (70, 1000)


def test_this_process_against_the_system_calls() -> None:
    found = cpu.effective_cpus()
    assert found.affinity == len(os.sched_getaffinity(0))
    assert found.visible == os.sysconf("SC_NPROCESSORS_ONLN")
    assert found.usable is not None and 0 < found.usable <= found.affinity
    assert cpu.load() == pytest.approx(os.getloadavg()[0], abs=1.0)

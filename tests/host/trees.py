"""Small trees of /proc and /sys as real machines show them, written into a test's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

V2_MOUNT = "29 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
ROOT_MOUNT = "25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"

STATUS = """Name:\tpython3
Umask:\t0022
State:\tR (running)
Pid:\t812
PPid:\t1
Threads:\t9
CapEff:\t{caps}
Seccomp:\t2
Cpus_allowed:\tff
Cpus_allowed_list:\t{cpus}
Mems_allowed_list:\t0
voluntary_ctxt_switches:\t120
nonvoluntary_ctxt_switches:\t7
"""


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below `root` and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def status(cpus: str = "0-11", caps: str = "0000000000000000") -> str:
    return STATUS.format(cpus=cpus, caps=caps)


def container_v2(root: Path, cpu_max: str = "400000 100000", **more: str) -> Path:
    """A container with its own cgroup namespace: it sees its group as the root of the hierarchy."""
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": ROOT_MOUNT + V2_MOUNT,
        "proc/self/status": status(),
        "sys/devices/system/cpu/online": "0-11\n",
        "sys/fs/cgroup/cpu.max": cpu_max + "\n",
        "sys/fs/cgroup/cpu.stat": (
            "usage_usec 36114411\nuser_usec 30011223\nsystem_usec 6103188\n"
            "nr_periods 2200\nnr_throttled 770\nthrottled_usec 91234567\nnr_bursts 0\nburst_usec 0\n"
        ),
    }
    return write(root, {**files, **{name.replace("__", "/"): text for name, text in more.items()}})


def pod_v2(root: Path, limits: Mapping[str, str]) -> Path:
    """A process in a nested slice that sees the host's whole hierarchy; `limits` maps a group's path to its cpu.max."""
    own = "/kubepods.slice/kubepods-burstable.slice/pod7.slice/cri-1.scope"
    write(
        root,
        {
            "proc/self/cgroup": f"0::{own}\n",
            "proc/self/mountinfo": ROOT_MOUNT + V2_MOUNT,
            "proc/self/status": status("0-63"),
            "sys/devices/system/cpu/online": "0-63\n",
            "sys/fs/cgroup/cgroup.controllers": "cpu io memory\n",
        },
    )
    (root / ("sys/fs/cgroup" + own)).mkdir(parents=True)
    for group, limit in limits.items():
        write(root, {f"sys/fs/cgroup{group}/cpu.max": limit + "\n"})
    return root


def docker_v1(root: Path, *, quota: str = "765000", namespaced: bool = False) -> Path:
    """Version 1 with the usual joint mount. Without a cgroup namespace /proc names the host's path."""
    inside = "/" if namespaced else "/docker/4f6c2e"
    mounts = "".join(
        f"{number} 30 0:{number} {inside} /sys/fs/cgroup/{name} ro,relatime master:11 - cgroup cgroup rw,{name}\n"
        for number, name in ((35, "cpu,cpuacct"), (36, "memory"), (37, "cpuset"))
    )
    return write(
        root,
        {
            "proc/self/cgroup": f"12:cpuset:{inside}\n5:memory:{inside}\n4:cpu,cpuacct:{inside}\n1:name=x:{inside}\n",
            "proc/self/mountinfo": ROOT_MOUNT + "30 25 0:29 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n" + mounts,
            "proc/self/status": status("0-95"),
            "proc/meminfo": "MemTotal:       528216860 kB\nMemFree:        11863552 kB\nMemAvailable:   480224000 kB\n",
            "sys/devices/system/cpu/online": "0-95\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota + "\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 1000\nnr_throttled 40\nthrottled_time 2500000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "50000000000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "21000000000\n",
            "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
            "sys/fs/cgroup/memory/memory.stat": "cache 900\ninactive_file 5\ntotal_inactive_file 8000000000\n",
        },
    )

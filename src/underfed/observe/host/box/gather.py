"""Gathers the Box of this machine: /proc and cgroups at once, GPUs and storage while the CPU counters run on."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from underfed.observe.gpu.decode import reasons
from underfed.observe.gpu.watch import Watch
from underfed.observe.host import cpu, memory, mounts, pressure
from underfed.observe.host.box import records
from underfed.observe.host.box.installed import installed_torch
from underfed.observe.host.box.probe import probe
from underfed.observe.host.box.ptrace import ptrace
from underfed.observe.host.cgroup import Groups, groups
from underfed.observe.host.files import base, integer, text

#: A driver without persistence mode takes seconds to start, and a lost card never answers.
_DRIVER_SECONDS = 20.0

#: GPM counters and stolen time are means over the time between two looks.
_BETWEEN_SECONDS = 0.5


def gather(folders: dict[str, Path], *, root: Path = Path("/"), write: bool = True) -> records.Box:
    """Gather everything but the findings. `folders` are those whose storage is looked at and, with `write`, probed."""
    watch = Watch()
    found = groups(root)
    watch.wait(_DRIVER_SECONDS)
    before, begin = cpu.stolen(root), time.monotonic()
    storage = [_storage(name, folder, root, write) for name, folder in folders.items()]
    time.sleep(max(0.0, _BETWEEN_SECONDS - (time.monotonic() - begin)))
    gpu = _gpu(watch)
    room, sizes = memory.shm(root), memory.memory(found, root)._asdict()
    return records.Box(
        cpu=_cpu(found, before, root),
        memory=records.Ram(**{name: size for name, size in sizes.items() if name != "active"}),
        shm=records.Room(**room._asdict()) if room else None,
        storage=storage,
        gpu=gpu,
        pressure=_pressure(found, root),
        ptrace=ptrace(root),
        torch=installed_torch(),
        open_files=_open_files(root),
        container=_container(root),
    )


def _cpu(found: Groups | None, before: tuple[int, int] | None, root: Path) -> records.Cpu:
    known, slowed = cpu.effective_cpus(root), cpu.throttle(found, cpu.quota(found))
    after, cores = cpu.stolen(root), cpu.cores(root)
    asked = integer(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0])
    # torch follows OMP_NUM_THREADS; else MKL, which is part of it on x86 only, counts cores and OpenMP counts CPUs
    alone = cores if platform.machine() in {"x86_64", "AMD64"} and cores else known.affinity
    passed = after[1] - before[1] if before and after else 0
    return records.Cpu(
        **known._asdict(),
        cores=cores,
        threads=asked if asked and asked > 0 else alone,
        omp_num_threads=asked,
        periods=slowed.nr_periods if slowed else None,
        throttled_periods=slowed.nr_throttled if slowed else None,
        throttled_ms=slowed.throttled_us / 1000 if slowed else None,
        load1=cpu.load(root),
        stolen=(after[0] - before[0]) / passed if before and after and passed > 0 else None,
    )


def _pressure(found: Groups | None, root: Path) -> records.Stall:
    shares: dict[str, float] = {}
    for prefix, readings in (("", pressure.system_pressure(root)), ("group_", pressure.group_pressure(found))):
        for name, reading in (readings or {}).items():
            if reading.some_avg10 is not None:
                shares[prefix + name] = reading.some_avg10 / 100
    return records.Stall(**shares)


def _storage(name: str, folder: Path, root: Path, write: bool) -> records.Storage:
    path = os.path.realpath(folder)
    mount = mounts.mount_of(path, mounts.mounts(root))
    room = memory.space(path)
    outcome: records.Probe | str = "not asked for"
    if room is None:
        outcome = "not there"
    elif write:
        outcome = probe(Path(path), mount.fs if mount else None)
    return records.Storage(
        folder=name,
        path=path,
        fs=mount.fs if mount else None,
        source=mount.source if mount else None,
        network=mount.network if mount else None,
        read_only=mount.read_only if mount else None,
        room=records.Room(**room._asdict()) if room else None,
        probe=outcome if isinstance(outcome, records.Probe) else None,
        skipped=outcome if isinstance(outcome, str) else None,
    )


def _gpu(watch: Watch) -> dict[str, Any]:
    readings = watch.wait(_DRIVER_SECONDS)
    box = watch.box
    watch.close()
    if box is None or readings is None:
        reason = f"the NVIDIA driver does not answer within {_DRIVER_SECONDS:.0f} s"
        return {"driver": None, "cuda": None, "reason": reason, "devices": []}
    now = {reading["device"]: reading for reading in readings}
    devices = [{**device, **now.get(device["device"], {})} for device in box["devices"]]
    return {**box, "devices": [{**device, "reasons": reasons(device.get("throttle"))} for device in devices]}


def _open_files(root: Path) -> int | None:
    """Return how many files one process may have open (the soft limit)."""
    for line in (text(f"{base(root)}/proc/self/limits") or "").splitlines():
        if line.startswith("Max open files"):
            return integer(line.split()[3])
    return None


def _container(root: Path) -> str | None:
    """Return the kind of container this runs in; None where nothing says that it does."""
    prefix = base(root)
    named = text(f"{prefix}/proc/self/cgroup") or ""
    if "kubepods" in named or os.path.isdir(f"{prefix}/var/run/secrets/kubernetes.io"):
        return "kubernetes"
    for mark, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman"), ("/singularity", "singularity")):
        if os.path.exists(prefix + mark):
            return kind
    return "docker" if "/docker/" in named else "lxc" if "/lxc/" in named else None

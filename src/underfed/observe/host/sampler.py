"""Samples the machine beside a run: one line a call in the recording's `host.jsonl`, only ever appended to.

The lines hold counters and sizes. No command line, environment value, path, host or user name is written.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from underfed.observe.host import cpu, memory, mounts, pressure, tree
from underfed.observe.host.cgroup import Groups, groups
from underfed.observe.host.files import base, text

if TYPE_CHECKING:
    from underfed.observe.gpu.watch import Watch

FILE = "host.jsonl"

#: A day at one line a second would be hundreds of MB; what a run does after ten minutes changes more slowly.
_FAST_SAMPLES = 600
_SLOWER = 10

#: Reading /proc/stat costs the kernel milliseconds on machines with hundreds of CPUs and interrupts.
_STAT_EVERY = 10
#: Short runs are looked at more often, so that two looks lie inside them.
_STAT_EARLY = (1, 3, 6)


class HostSampler:
    """Follows a process and all below it. `off` says why nothing is written any more; None while all is well.

    `every` is the wished interval in seconds: `poll` keeps to it for the first 600 samples and then takes a tenth of
    them; `sample` writes at each call. Neither ever raises.
    """

    def __init__(self, pid: int, folder: Path, every: float = 1.0, *, root: Path = Path("/"), gpu: bool = True) -> None:
        self.pid = pid
        self.every = every
        self.off: str | None = None
        self._root = root
        self._tree = tree.Tree(pid, root)
        self._groups: Groups | None = None
        self._samples = 0
        self._due = 0.0
        self._descriptor: int | None = None
        self._watch: Watch | None = None
        self._gpu = gpu
        self._gpus_told = False
        try:
            self._descriptor = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._stop(error)

    def poll(self) -> float:
        """Write a sample where one is due; return the seconds until the next one is."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + (self.every if self._samples < _FAST_SAMPLES else self.every * _SLOWER)
            self.sample()
        return max(0.0, self._due - time.monotonic())

    def sample(self) -> bool:
        """Append one line; return whether it was written. The first call writes the machine's facts before it."""
        if self.off is not None:
            return False
        try:
            return self._sample()
        except Exception as error:  # a fault of the observer must never reach the run
            self._stop(error)
            return False

    def close(self) -> None:
        """Stop for good."""
        self._stop(None)

    def _stop(self, error: BaseException | None) -> None:
        self.off = self.off or (
            f"{type(error).__name__}: {error.strerror}" if isinstance(error, OSError) else type(error).__name__
        )
        if error is None:
            self.off = "closed" if self.off == "NoneType" else self.off
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        if self._watch is not None:
            self._watch.close()

    def _sample(self) -> bool:
        if self._samples == 0 and self._gpu:
            from underfed.observe.gpu.watch import Watch

            self._watch = Watch()
        self._follow_groups()
        box = self._watch.box if self._watch else None
        if self._samples == 0 or (box is not None and not self._gpus_told):
            self._gpus_told = box is not None
            self._write({"k": "box", "t_ns": time.time_ns(), **self._box(), "gpu": box})
        limit = cpu.quota(self._groups)
        slowed = cpu.throttle(self._groups, limit)
        line: dict[str, Any] = {
            "k": "host",
            "t_ns": time.time_ns(),
            "cpu": {
                "quota": limit.cpus if limit else None,
                **(slowed._asdict() if slowed else dict.fromkeys(cpu.Throttle._fields)),
                "load1": cpu.load(self._root),
            },
            "psi": {
                "system": _plain(pressure.system_pressure(self._root)),
                "group": _plain(pressure.group_pressure(self._groups)),
            },
            "mem": {**memory.memory(self._groups, self._root)._asdict(), "shm_free": _free(memory.shm(self._root))},
            "tree": [process._asdict() for process in self._tree.read()],
            "gpu": self._watch.take() if self._watch else None,
        }
        due = self._samples % _STAT_EVERY == 0 or self._samples in _STAT_EARLY
        if due and (ticks := cpu.ticks(self._root)) is not None:
            line["cpu"] |= {"stolen_ticks": ticks.stolen, "all_ticks": ticks.all, "idle_ticks": ticks.idle}
        self._samples += 1
        return self._write(line)

    def _follow_groups(self) -> None:
        """Look the groups up anew where the process was moved to others, as a scheduler does after the start."""
        named = text(f"{base(self._root)}/proc/{self.pid}/cgroup")
        if named and (self._groups is None or self._groups.membership != named):
            self._groups = groups(self._root, self.pid)

    def _box(self) -> dict[str, Any]:
        cpus = cpu.effective_cpus(self._root, self.pid)
        sizes, room = memory.memory(self._groups, self._root), memory.shm(self._root)
        return {
            "cpu": {**cpus._asdict(), "cores": cpu.cores(self._root, self.pid)},
            "mem": {"total": sizes.total, "limit": sizes.limit},
            "shm": {"total": room.total, "free": room.free} if room else None,
            "cwd": self._storage(),
        }

    def _storage(self) -> dict[str, Any] | None:
        """Return what the process's folder is stored on: its type, not its name."""
        try:
            place = os.readlink(f"{base(self._root)}/proc/{self.pid}/cwd")
        except OSError:
            return None
        mount = mounts.mount_of(place, mounts.mounts(self._root, self.pid))
        return {"fs": mount.fs, "network": mount.network} if mount else None

    def _write(self, line: dict[str, Any]) -> bool:
        if self._descriptor is None:
            return False
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        # a folder that was deleted takes writes without an error, and nobody will ever read them
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(2, "the recording's folder is gone")
        if os.write(self._descriptor, data) != len(data):
            raise OSError(28, "the disk is full")
        return True


def _plain(found: dict[str, Any] | None) -> dict[str, Any] | None:
    return {name: reading._asdict() for name, reading in found.items()} if found else None


def _free(room: NamedTuple | None) -> int | None:
    return getattr(room, "free", None)

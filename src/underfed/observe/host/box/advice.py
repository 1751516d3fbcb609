"""What to fix on a box, most costly first: each check looks at the facts and says one sentence and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from underfed.observe.gpu.decode import POWER_CAP, slowing
from underfed.observe.host.box.records import Advice, Box, Room, Storage

_GIB = 1 << 30
_SHM = "/dev/shm"  # noqa: S108  # shown, never written to


@dataclass(frozen=True)
class Limits:
    """Where a fact becomes advice, each with its reason. They judge a machine, not a run: no error rates."""

    throttled: float = 0.05
    """Share of quota periods: now and then a burst is stopped on healthy runs, too."""
    stolen: float = 0.05
    """Share of CPU time: less is within what clocks and neighbours do to any virtual machine."""
    memory_used: float = 0.9
    """Share of the limit that cannot be dropped: the next batch of workers ends it."""
    shm: int = _GIB
    """Docker gives 64 MiB; eight workers, each with two batches of 64 images (3x224x224 floats), need 0.6 GiB."""
    free: int = 10 * _GIB
    """Bytes: a checkpoint with optimizer state of a 1-billion-parameter model is 12 to 16 GB."""
    inodes: int = 50_000
    """Rented boxes with a cap give about 200,000; an extracted image dataset takes a million."""
    write_mb_s: float = 100.0
    """Below it a checkpoint of 10 GB takes more than 100 s."""
    small_read_ms: float = 2.0
    """One file a sample: at 2 ms a worker reads no more than 500 samples a second and does nothing else."""
    clock: float = 0.9
    """Share of the maximum SM clock: a card that works hard runs some percent below it within its power limit."""
    power_drawn: float = 0.9
    """Share of the power limit: at or above it the card does all that it can be fed for."""
    power_limit: float = 0.97
    """Share of the default power limit: less is a setting, not rounding."""
    gpu_memory: int = 2 * _GIB
    """Driver and context hold some hundred MB on an empty card."""
    pressure: float = 0.2
    """Share of the last 10 s in which some task waited."""


LIMITS = Limits()


def advise(box: Box, limits: Limits = LIMITS) -> list[Advice]:
    """Return what to fix on this box, first things first; empty where nothing is known to be wrong."""
    checks = (_gpus, _cuda, _cpus, _throttled, _stolen, _memory, _shm, _storages, _busy, _stacks)
    return [advice for check in checks for advice in check(box, limits)]


def count(number: float) -> str:
    """Return a number of CPUs without a needless fraction."""
    return f"{number:.0f}" if number == int(number) else f"{number:.2f}".rstrip("0")


def _cpus(box: Box, _: Limits) -> Iterator[Advice]:
    cpu = box.cpu
    if cpu.usable is None or cpu.limited_by in {None, "visible"}:
        return
    threads = max(1, math.floor(cpu.usable))
    export = f"export OMP_NUM_THREADS={threads} MKL_NUM_THREADS={threads} (divided by the training processes here)"
    workers = f"give all DataLoaders together about {max(1, threads - 1)} workers"
    if cpu.limited_by == "quota":
        seen = cpu.affinity or cpu.visible
        text = f"{seen} CPUs are visible, the quota is {count(cpu.usable)}"
        if cpu.threads and cpu.threads > threads:
            text += f": torch starts {cpu.threads} threads a process, and they get throttled together"
        yield Advice(rule="U40", text=text, fix=f"{export}; {workers}")
    else:
        text = (
            f"{cpu.visible} CPUs are visible, this process may run on {cpu.affinity}: os.cpu_count() says {cpu.visible}"
        )
        yield Advice(
            rule="U40", text=text, fix=f"{export}; {workers}; use len(os.sched_getaffinity(0)) where code counts CPUs"
        )


def _throttled(box: Box, limits: Limits) -> Iterator[Advice]:
    periods, throttled = box.cpu.periods, box.cpu.throttled_periods
    if periods and throttled and throttled / periods > limits.throttled:
        text = f"the CPU quota stopped this group in {throttled / periods:.0%} of its periods so far"
        yield Advice(rule="U40", text=text, fix="run fewer threads and workers, or rent more CPUs")


def _stolen(box: Box, limits: Limits) -> Iterator[Advice]:
    if box.cpu.stolen is not None and box.cpu.stolen > limits.stolen:
        text = f"the hypervisor took {box.cpu.stolen:.0%} of the CPU time just now: the host is shared"
        yield Advice(
            rule=None, text=text, fix="count on fewer CPUs than are shown, or ask for a host that is not oversold"
        )


def _memory(box: Box, limits: Limits) -> Iterator[Advice]:
    memory = box.memory
    if memory.oom_kills:
        times = "once" if memory.oom_kills == 1 else f"{memory.oom_kills} times"
        text = f"the kernel killed a process of this group for memory {times}"
        yield Advice(
            rule="U9",
            text=text,
            fix="lower num_workers and prefetch_factor; each worker can hold its own copy of the dataset object",
        )
    if memory.limit is None:
        return
    if memory.used is not None and memory.used - (memory.cache or 0) > limits.memory_used * memory.limit:
        held = (memory.used - (memory.cache or 0)) / memory.limit
        text = f"{held:.0%} of the memory limit of {size(memory.limit)} is held already"
        yield Advice(
            rule="U9",
            text=text,
            fix="end what holds it before training starts, or expect worker processes to be killed",
        )
    elif memory.total is not None and memory.limit < memory.total / 2:
        text = (
            f"the memory limit is {size(memory.limit)}, programs see {size(memory.total)}; /dev/shm counts towards it"
        )
        yield Advice(rule="U9", text=text, fix=f"size caches and num_workers for {size(memory.limit)}")


def _shm(box: Box, limits: Limits) -> Iterator[Advice]:
    fix = (
        "start the container with --ipc=host or --shm-size=16g (Kubernetes: an emptyDir with medium Memory on /dev/shm)"
    )
    if box.shm is not None and box.shm.total < limits.shm:
        text = f"{_SHM} has {size(box.shm.total)}: DataLoader workers pass batches through it and die with a bus error"
        yield Advice(rule=None, text=text, fix=f"{fix}, or lower num_workers and prefetch_factor")
    elif box.shm is not None and box.shm.free < limits.shm:
        text = f"{_SHM} has {size(box.shm.free)} free of {size(box.shm.total)}"
        yield Advice(
            rule=None, text=text, fix="remove what killed runs left there (ls -l /dev/shm), or lower num_workers"
        )


def _storages(box: Box, limits: Limits) -> Iterator[Advice]:
    seen: set[tuple[str | None, str | None]] = set()
    for each in box.storage:
        # a box often has one disk; saying things about it once is enough
        if (each.source, each.fs) not in seen:
            seen.add((each.source, each.fs))
            yield from _storage(each, box, limits)


def _storage(each: Storage, box: Box, limits: Limits) -> Iterator[Advice]:
    place = f"{each.folder} ({each.path})" if each.folder != each.path else each.path
    if each.skipped is not None and each.skipped not in {"not asked for", "not there"}:
        yield Advice(
            rule=None, text=f"{place}: {each.skipped}", fix="write results and caches elsewhere, or free room first"
        )
    if each.network:
        near = next(
            (other for other in box.storage if other.network is False and other.room and not other.skipped), None
        )
        to = f" to {near.path} ({size(near.room.free)} free)" if near is not None and near.room else " to a local disk"
        text = f"{place} is on {each.fs}, reached over a network or from the host"
        yield Advice(rule="U8", text=text, fix=f"copy the dataset{to} before training; keep only results here")
    if each.room is not None:
        yield from _room(place, each.room, limits)
    measured = each.probe
    if measured is None:
        return
    if measured.write_mb_s is not None and measured.write_mb_s < limits.write_mb_s:
        seconds = 1000 / measured.write_mb_s
        text = f"{place} takes {measured.write_mb_s:.0f} MB/s with fsync: 1 GB of checkpoint needs {seconds:.0f} s"
        yield Advice(
            rule=None, text=text, fix="save checkpoints less often or from another thread, or to a faster disk"
        )
    if measured.small_read_ms is not None and measured.small_read_ms > limits.small_read_ms:
        text = f"{place} takes {measured.small_read_ms:.1f} ms to open and read one small file"
        yield Advice(rule="U25", text=text, fix="pack the samples into few large files, or copy them to a local disk")


def _room(place: str, room: Room, limits: Limits) -> Iterator[Advice]:
    if room.free < limits.free:
        yield Advice(
            rule=None, text=f"{place} has {size(room.free)} left", fix="free room before a checkpoint fails half-way"
        )
    if room.inodes_free is not None and room.inodes_free < limits.inodes:
        text = f"{place} has {room.inodes_free:,} inodes left of {room.inodes or 0:,}"
        yield Advice(rule="U25", text=text, fix="do not unpack datasets of many files here; keep them as archives")


def _gpus(box: Box, limits: Limits) -> Iterator[Advice]:
    for device in box.gpu["devices"]:
        name = f"GPU {device['device']}"
        clock, most = device.get("sm_mhz"), device.get("max_sm_mhz")
        why = slowing(device.get("throttle"))
        drawn, allowed = device.get("power_w"), device.get("limit_w")
        if drawn and allowed and drawn > limits.power_drawn * allowed:
            # a card that draws its full power has no clock to spare: that is how dense kernels look on a healthy one
            why = [reason for reason in why if reason != POWER_CAP]
        if why and clock and most and clock < limits.clock * most:
            text = f"{name} runs at {clock} of {most} MHz: {', '.join(why)}"
            yield Advice(
                rule="U23", text=text, fix="no change of code helps: ask the provider, or move to another machine"
            )
        limit, usual = device.get("limit_w"), device.get("default_limit_w")
        if limit and usual and limit < limits.power_limit * usual:
            text = f"{name} is limited to {limit:.0f} W, its default is {usual:.0f} W"
            yield Advice(
                rule="U23", text=text, fix=f"nvidia-smi -pl {usual:.0f} (needs root on the host), or ask the provider"
            )
        width, widest = device.get("pcie_width"), device.get("pcie_width_max")
        if width and widest and width < widest:
            text = f"{name} has {width} of {widest} PCIe lanes: copies to it take {widest / width:.0f} times as long"
            yield Advice(rule=None, text=text, fix="ask for another slot or machine where copies matter")
        used, processes = device.get("mem_used"), device.get("processes")
        if used and used > limits.gpu_memory:
            who = (
                "no process that can be seen from here"
                if not processes
                else f"{processes} process{'es' if processes > 1 else ''}"
            )
            text = f"{size(used)} of {name}'s memory is in use by {who}"
            yield Advice(
                rule="U10", text=text, fix="unless that is your run: end it, or ask the provider who shares the card"
            )
        if device.get("mig"):
            text = f"{name} is split (MIG): a job gets a slice of it, and utilization is not counted for slices"
            yield Advice(
                rule=None, text=text, fix="compare prices and step times with a slice, not with the whole card"
            )


def _cuda(box: Box, _: Limits) -> Iterator[Advice]:
    if box.torch is None or not box.gpu["devices"]:
        return
    if box.torch.cuda is None:
        text = f"the torch of this Python ({box.torch.version}) is built without CUDA: it cannot use the GPU"
        yield Advice(
            rule="U28", text=text, fix="install torch from the index for this driver's CUDA (pytorch.org/get-started)"
        )
    elif (driver := box.gpu.get("cuda")) and _major(box.torch.cuda) > _major(driver):
        text = f"torch is built for CUDA {box.torch.cuda}, the driver {box.gpu['driver']} runs CUDA {driver} at most"
        yield Advice(
            rule="U28",
            text=text,
            fix=f"install a torch built for CUDA {_major(driver)}, or rent a machine with a newer driver",
        )


def _major(version: str) -> int:
    word = version.partition(".")[0]
    return int(word) if word.isdecimal() else 0


def _busy(box: Box, limits: Limits) -> Iterator[Advice]:
    if box.pressure.cpu is not None and box.pressure.cpu > limits.pressure:
        text = f"in {box.pressure.cpu:.0%} of the last 10 s something here waited for a CPU: other work is running"
        yield Advice(rule=None, text=text, fix="unless that is your run: measure only once it has ended (top shows it)")
    if box.pressure.memory is not None and box.pressure.memory > limits.pressure:
        text = f"in {box.pressure.memory:.0%} of the last 10 s something here waited for memory"
        yield Advice(rule=None, text=text, fix="lower num_workers, or end what holds the memory")


def _stacks(box: Box, _: Limits) -> Iterator[Advice]:
    if box.ptrace.reach in {"any", "user", None}:
        return
    if box.ptrace.blocked:
        fix = "start the container with --cap-add SYS_PTRACE --security-opt seccomp=unconfined"
    elif box.container is not None:
        fix = "start the container with --cap-add SYS_PTRACE; `underfed run` can do without"
    else:
        fix = "sudo sysctl kernel.yama.ptrace_scope=0; `underfed run` can do without"
    reach = "only of processes that it started" if box.ptrace.reach == "children" else "of no process"
    yield Advice(rule="T21", text=f"py-spy can read stacks {reach} here: `underfed attach` sees less", fix=fix)


def size(number: float) -> str:
    """Return bytes for people: 64 MiB, 1.5 GiB."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", _GIB), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale:
            value = number / scale
            return f"{value:.0f} {unit}" if value >= 100 or value == int(value) else f"{value:.1f} {unit}"
    return f"{number:.0f} B"

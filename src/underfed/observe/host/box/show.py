"""The Box as plain text: one row a fact, findings as sentences, never wider than 80 columns."""

from __future__ import annotations

from typing import Any

from underfed.observe.gpu.decode import slowing
from underfed.observe.host.box.advice import count, size
from underfed.observe.host.box.records import Box, Room, Storage
from underfed.report.text import clean, wrap

WIDTH = 80
_LABEL = 13


def table(rows: list[tuple[str, str]], width: int = WIDTH) -> list[str]:
    """Return rows of a label and a text as lines; long texts go on below themselves, a label is shown once."""
    lines, last = [], ""
    for label, content in rows:
        for number, part in enumerate(wrap(clean(content), width - _LABEL)):
            shown = label if number == 0 and label != last else ""
            lines.append(f"{shown:<{_LABEL}}{part}".rstrip())
        last = label
    return lines


def text(box: Box, width: int = WIDTH) -> str:
    """Return the whole page with a final newline."""
    lines = table([*_cpu(box), *_memory(box), *_storage(box), *_gpu(box), *_rest(box)], width)
    lines.append("")
    if not box.findings:
        lines.append("Nothing to fix was found.")
    for number, each in enumerate(box.findings, 1):
        mark = f"{number}. "
        rule = f" [{each.rule}]" if each.rule else ""
        for place, part in enumerate(wrap(clean(f"{each.text}{rule}"), width - len(mark))):
            lines.append((mark if place == 0 else " " * len(mark)) + part)
        for place, part in enumerate(wrap(clean(each.fix), width - len(mark) - 3)):
            lines.append(" " * len(mark) + ("-> " if place == 0 else "   ") + part)
    return "\n".join(lines) + "\n"


def _known(value: Any, unknown: str = "not known") -> str:
    return unknown if value is None else count(value) if isinstance(value, float) else str(value)


def _cpu(box: Box) -> list[tuple[str, str]]:
    cpu = box.cpu
    quota = count(cpu.quota) if cpu.quota is not None else ("none" if cpu.quota_known else "not known")
    seen = f"{_known(cpu.visible)} visible, affinity {_known(cpu.affinity)}, quota {quota}"
    rows = [
        ("CPU", f"{_known(cpu.usable)} usable: {seen}"),
        ("CPU", f"what counts: {cpu.source or 'not known'}"),
        ("CPU", f"physical cores {_known(cpu.cores)}; torch starts {_known(cpu.threads)} threads a process"),
    ]
    if cpu.periods and cpu.throttled_periods is not None:
        rows.append(("CPU", f"throttled in {cpu.throttled_periods / cpu.periods:.1%} of {cpu.periods} quota periods"))
    stolen = f", stolen by the hypervisor {cpu.stolen:.1%}" if cpu.stolen is not None else ""
    return [*rows, ("CPU", f"load {_known(cpu.load1)}{stolen}")]


def _memory(box: Box) -> list[tuple[str, str]]:
    memory = box.memory
    limit = f"limit {size(memory.limit)}" if memory.limit is not None else "no limit seen"
    total = f"{size(memory.total)} in the machine, " if memory.total is not None else ""
    used = f"{size(memory.used)} used by this group" if memory.used is not None else "use of this group not known"
    cache = f" ({size(memory.cache)} of it droppable cache)" if memory.used is not None and memory.cache else ""
    kills = f", {memory.oom_kills} killed for memory" if memory.oom_kills is not None else ""
    shm = "not there" if box.shm is None else f"{size(box.shm.free)} free of {size(box.shm.total)}"
    return [("memory", f"{total}{limit}, {used}{cache}{kills}"), ("/dev/shm", shm)]  # noqa: S108  # a label


def _storage(box: Box) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for each in box.storage:
        kind = {True: "network or host share", False: "local", None: "local or network not known"}[each.network]
        rows.append((each.folder, f"{each.path}: {each.fs or 'file system not known'}, {kind}{_room(each.room)}"))
        rows.append((each.folder, _probe(each)))
    return rows


def _room(room: Room | None) -> str:
    if room is None:
        return ""
    inodes = f", {room.inodes_free:,} inodes" if room.inodes_free is not None else ""
    return f"; free: {size(room.free)}{inodes}"


def _probe(each: Storage) -> str:
    if each.probe is None:
        return f"not measured: {each.skipped}"
    probe = each.probe
    parts = [f"write with fsync {probe.write_mb_s:.0f} MB/s" if probe.write_mb_s is not None else ""]
    if probe.read_mb_s is not None:
        parts.append(f"read {probe.read_mb_s:.0f} MB/s" + (" (from memory)" if probe.read_cached else ""))
    if probe.small_write_ms is not None and probe.small_read_ms is not None:
        parts.append(f"a 4 KiB file: write {probe.small_write_ms:.2f} ms, read {probe.small_read_ms:.2f} ms")
    return f"{size(probe.bytes)} probe: " + ", ".join(part for part in parts if part)


def _gpu(box: Box) -> list[tuple[str, str]]:
    if box.gpu["reason"]:
        return [("GPU", str(box.gpu["reason"]))]
    rows = [("driver", f"{_known(box.gpu['driver'])}, runs CUDA up to {_known(box.gpu['cuda'])}")]
    for device in box.gpu["devices"]:
        rows += [(f"GPU {device['device']}", line) for line in _device(device)]
    return rows


def _device(device: dict[str, Any]) -> list[str]:
    def say(name: str, digits: int = 0) -> str:
        value = device.get(name)
        return "?" if value is None else f"{value:.{digits}f}"

    total, used = device.get("memory"), device.get("mem_used")
    held = (
        f"{size(total)} memory, {size(used)} in use" if total is not None and used is not None else "memory not known"
    )
    why = slowing(device.get("throttle"))
    reasons = device.get("reasons")
    state = (
        "clock held down by: " + ", ".join(why)
        if why
        else "not throttled"
        if reasons is not None
        else "throttling not known"
    )
    state += " (idle)" if reasons and "idle" in reasons else ""
    lines = [
        f"{device.get('name') or 'name not known'}, {held}" + (", MIG on" if device.get("mig") else ""),
        f"SM {say('sm_mhz')} of {say('max_sm_mhz')} MHz, {say('power_w')} of {say('limit_w')} W, {say('temp_c')} C",
        state,
        f"PCIe gen {say('pcie_gen')} of {say('pcie_gen_max')}, {say('pcie_width')} of {say('pcie_width_max')} lanes; "
        f"busy {say('utilization')} % of the time (any kernel)",
    ]
    gpm = device.get("gpm")
    if gpm and gpm.get("sm") is not None:
        named = (("sm", "SM"), ("tensor", "tensor"), ("dram", "DRAM"))
        parts = [f"{word} {gpm[name]:.1f} %" for name, word in named if gpm.get(name) is not None]
        lines.append("really used (GPM): " + ", ".join(parts))
    return lines


def _rest(box: Box) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if box.torch is not None:
        rows.append(
            ("torch", f"{box.torch.version}, built for {'CUDA ' + box.torch.cuda if box.torch.cuda else 'CPU only'}")
        )
    named = (("CPU", box.pressure.cpu), ("I/O", box.pressure.io), ("memory", box.pressure.memory))
    waits = [f"{name} {share:.0%}" for name, share in named if share is not None]
    rows.append(
        ("pressure", f"waited in the last 10 s for: {', '.join(waits)}" if waits else "the kernel does not keep it")
    )
    reach = {
        "any": "of any process",
        "user": "of your own processes",
        "children": "only of its own children",
        "none": "of no process",
    }
    rows.append(
        ("py-spy", f"may read stacks {reach[box.ptrace.reach]}" if box.ptrace.reach else "permission not known")
    )
    inside = f"; in a container ({box.container})" if box.container else ""
    return [*rows, ("limits", f"{_known(box.open_files)} open files a process{inside}")]

"""Which process is meant: a pid, a part of a command line, or whoever holds a GPU; then the top of its run."""

from __future__ import annotations

import os
from typing import NamedTuple

from underfed.errors import MeasurementError, UsageError
from underfed.observe.host.files import field, integer, text
from underfed.observe.live import proc
from underfed.report.text import clean

#: Programs and modules that start ranks and wait for them; a rank is looked at together with its siblings.
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "deepspeed",
    "mpirun",
    "underfed",
)
_MOST_SHOWN = 20


class Target(NamedTuple):
    """The process at the top of what is looked at, when it started (ticks since boot), and why it is not `asked`."""

    pid: int
    start: int
    asked: int
    note: str | None


def no_python(pid: int, name: str) -> MeasurementError:
    """Return what to raise where a process of this name, and all below it, run no Python."""
    return MeasurementError(f"attach: process {pid} ({clean(name)}) runs no Python, nor does any below it")


def choose(wanted: str | None, gpu: int | None) -> Target:
    """Find the one process that is meant.

    Raises UsageError, with a list to choose from, where none or several fit, and MeasurementError where the process
    that is meant has ended.
    """
    if gpu is not None:
        pid = _only(_holders(gpu), f"GPU {gpu} is held by several processes", f"no process seen here holds GPU {gpu}")
    elif wanted is None or not wanted.strip():
        raise UsageError("attach: name a process: underfed attach PID, a part of its command line, or --gpu 0")
    elif wanted.isascii() and wanted.removeprefix("-").isdigit():
        pid = _of_number(int(wanted))
    else:
        hint = f"no Python process has {clean(wanted)!r} in its command line; ps -ef shows what runs"
        pid = _only(matches(wanted), f"several runs have {clean(wanted)!r} in their command line", hint)
    top, note = _top(pid)
    seen = proc.start_and_state(top)
    if seen is None:
        raise MeasurementError(f"attach: process {pid} has ended")
    if seen[1] in {"Z", "X"}:
        raise MeasurementError(
            f"attach: process {pid} has ended; its entry stays until its parent {parent(pid) or '?'} takes notice"
            " (a zombie). Nothing of it can be seen"
        )
    return Target(top, seen[0], pid, note)


def _of_number(pid: int) -> int:
    if pid < 1 or pid > 1 << 31:
        raise UsageError(f"attach: {pid} is no process; ps -ef shows what runs")
    leader = proc.group_leader(pid)
    if leader is None:
        raise UsageError(
            f"attach: there is no process {pid} here (on another machine, in a container, or hidden?); ps -ef shows all"
        )
    return leader


def parent(pid: int) -> int | None:
    """Return a process's parent; None where it is gone."""
    return integer(field(text(f"/proc/{pid}/status"), "PPid"))


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    above = parent(pid)
    while above and above not in found:
        found.append(above)
        above = parent(above)
    return found


def _pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdecimal())


def matches(wanted: str) -> list[int]:
    """Return the processes with this text in their command line that run Python, or have Python below them.

    Of several in one tree the topmost counts. This process and those above it never do.
    """
    ours = {os.getpid(), *_ancestors(os.getpid())}
    named = {pid for pid in _pids() if pid not in ours and wanted in " ".join(proc.command_line(pid))}
    above = {pid: set(_ancestors(pid)) for pid in named}
    named = {pid for pid in named if os.getpid() not in above[pid]}
    tops = {pid for pid in named if not above[pid] & named}
    if not tops:
        return []
    python = {pid for pid in _pids() if pid in tops or set(_ancestors(pid)) & tops if proc.runs_python(pid)}
    return sorted(top for top in tops if top in python or any(top in _ancestors(pid) for pid in python))


def _holders(gpu: int) -> list[int]:
    """Return the processes that hold a GPU: by NVML, or by their open files where its pids are of another container."""
    from underfed.observe.gpu.nvml import open_nvml

    nvml = open_nvml()
    if isinstance(nvml, str):
        raise UsageError(f"attach: --gpu {gpu}: {nvml}")
    try:
        if not 0 <= gpu < len(nvml.handles):
            raise UsageError(f"attach: --gpu {gpu}: there are GPUs 0 to {len(nvml.handles) - 1}")
        named = [pid for pid in nvml.processes(gpu) or [] if proc.group_leader(pid) == pid and proc.runs_python(pid)]
    finally:
        nvml.close()
    if named:
        return named
    ours = {os.getpid(), *_ancestors(os.getpid())}
    open_here = {pid for pid in _pids() if pid not in ours and gpu in devices(pid) and proc.runs_python(pid)}
    return sorted(pid for pid in open_here if parent(pid) not in open_here)


def devices(pid: int) -> set[int]:
    """Return the numbers of the NVIDIA devices that a process has open; empty without permission."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return set()
    tails = (link.removeprefix("/dev/nvidia") for link in links if link.startswith("/dev/nvidia"))
    return {int(tail) for tail in tails if tail.isascii() and tail.isdigit()}


def _only(found: list[int], several: str, none: str) -> int:
    if not found:
        raise UsageError(f"attach: {none}")
    if len(found) == 1:
        return found[0]
    shown = [f"  {pid:>8}  {clean(' '.join(proc.command_line(pid)))[:100]}" for pid in found[:_MOST_SHOWN]]
    more = [f"  and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    raise UsageError("\n".join([f"attach: {several}; choose one by its pid:", *shown, *more]))


def is_launcher(words: list[str]) -> bool:
    """Return whether a command line is that of a program which starts ranks."""
    return any(os.path.basename(word).removesuffix(".py") in LAUNCHERS for word in words[:4])


def _top(pid: int) -> tuple[int, str | None]:
    """Climb from a loader worker or a rank to the process that its run starts with."""
    top, note = pid, None
    comm = (text(f"/proc/{pid}/comm") or "").strip()
    above = parent(pid)
    if comm == "pt_data_worker" and above and above > 1:
        top, note = above, f"{pid} is a loader worker of {above}"
    above = parent(top)
    if above and above > 1 and is_launcher(proc.command_line(above)):
        top, note = above, f"{pid} was started by the launcher {above}: all its ranks are looked at"
    return top, note

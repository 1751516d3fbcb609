"""What /proc says of one process beyond its counters: command line, rank, threads, what it waits for in the kernel."""

from __future__ import annotations

import os
from typing import NamedTuple

from underfed.observe.host.files import field, integer, text

#: The only variables that are ever looked for in a process's environment; no other is kept.
_RANK_NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_PROCID")
_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK") or 1


class Thread(NamedTuple):
    """One thread: CPU time, time on a CPU and on a run queue in ms; None where the kernel does not say."""

    tid: int
    comm: str
    state: str
    cpu_ms: int
    run_ms: float | None
    wait_ms: float | None
    sleeps: int | None
    """How often it gave up its CPU by itself; a thread that waits for one thing alone does not."""


def command_line(pid: int) -> list[str]:
    """Return a process's words, empty for kernel threads, zombies and processes that are gone."""
    content = text(f"/proc/{pid}/cmdline") or ""
    return content.rstrip("\0").split("\0") if content else []


def program(pid: int, words: list[str] | None = None) -> str:
    """Return the base name of a process's program; of its first word where the link cannot be read."""
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)"))
    except OSError:
        words = command_line(pid) if words is None else words
        return os.path.basename(words[0]) if words else ""


def runs_python(pid: int) -> bool:
    """Return whether a process is a Python interpreter, or a program that holds one."""
    words = command_line(pid)
    names = {program(pid, words), os.path.basename(words[0]) if words else ""}
    if any(name.startswith(("python", "pypy")) or name == "pt_main_thread" for name in names):
        return True
    return "libpython" in (text(f"/proc/{pid}/maps") or "")


def holds_torch(pid: int) -> bool | None:
    """Return whether a process has loaded torch; None without permission."""
    content = text(f"/proc/{pid}/maps")
    return None if content is None else "/libtorch" in content


def environment(pid: int) -> dict[str, str] | None:
    """Return the variables that say which rank a process is; None without permission."""
    content = text(f"/proc/{pid}/environ")
    if content is None:
        return None
    pairs = (entry.partition("=") for entry in content.split("\0"))
    return {name: value[:64] for name, _, value in pairs if name in _RANK_NAMES}


def group_leader(pid: int) -> int | None:
    """Return the process that a pid or a thread's number belongs to; None where there is none."""
    return integer(field(text(f"/proc/{pid}/status"), "Tgid"))


def owner(pid: int) -> int | None:
    """Return the effective user of a process; None where it is gone."""
    words = (field(text(f"/proc/{pid}/status"), "Uid") or "").split()
    return integer(words[1]) if len(words) > 1 else None


def start_and_state(pid: int) -> tuple[int, str] | None:
    """Return when a process started, in ticks since boot, and its state's letter; None where it is gone."""
    content = text(f"/proc/{pid}/stat")
    words = content.rpartition(")")[2].split() if content else []
    start = integer(words[19]) if len(words) > 19 else None
    return (start, words[0]) if start is not None else None


def threads(pid: int) -> list[Thread]:
    """Return the living threads of a process; empty where it is gone."""
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found = []
    for name in names:
        content = text(f"/proc/{pid}/task/{name}/stat")
        if content is None:
            continue
        head, _, tail = content.rpartition(")")
        words = tail.split()
        times = [integer(word) for word in words[11:13]]
        if len(times) != 2 or times[0] is None or times[1] is None:
            continue
        queue = [integer(word) for word in (text(f"/proc/{pid}/task/{name}/schedstat") or "").split()]
        ran, waited = (queue[0], queue[1]) if len(queue) == 3 else (None, None)
        found.append(
            Thread(
                tid=int(name),
                comm=head.partition("(")[2],
                state=words[0],
                cpu_ms=(times[0] + times[1]) * _TICK_MS,
                run_ms=ran / 1e6 if ran is not None else None,
                wait_ms=waited / 1e6 if waited is not None else None,
                sleeps=integer(field(text(f"/proc/{pid}/task/{name}/status"), "voluntary_ctxt_switches")),
            )
        )
    return found


def kernel_wait(pid: int, tid: int) -> str | None:
    """Return the kernel function that a thread sleeps in; None while it runs and where it may not be seen."""
    found = (text(f"/proc/{pid}/task/{tid}/wchan") or "").strip()
    return found.partition(".")[0] if found not in {"", "0"} else None

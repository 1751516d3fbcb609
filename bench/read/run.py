"""How fast `underfed read` is beside HTA (`traceinsight` on PyPI), on the same trace, in turns.

    python bench/read/run.py TRACE [TRACE...] --hta PYTHON [--runs 3]

PYTHON is the interpreter of an environment with `pip install traceinsight==0.6.1`. A trace of any size is made by
`make_big_trace.py` of the shared traces. For underfed the whole command is timed, from start to the printed Diagnosis;
for HTA its own work (loading, and the three calls that give busy time, idle causes and overlap), without imports, and
its whole process.
Memory is the largest sum of resident pages over the process and its children, sampled 10 times a second. On a machine
that others use, CPU time and the best run say more than the median.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import psutil

_HTA = """
import logging, os, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begin, before = time.perf_counter(), sum(os.times()[:4])
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_comm_comp_overlap(visualize=False)
print("seconds", time.perf_counter() - begin, sum(os.times()[:4]) - before)
"""


def resident(process: psutil.Process) -> int:
    """Bytes that a process and its children hold now."""
    return sum(_resident(one) for one in [process, *process.children(recursive=True)])


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


@dataclass(frozen=True)
class Run:
    """Wall and CPU seconds, the latter of a process and all its children, and the most bytes that they held."""

    wall: float
    cpu: float
    most: int


def timed(command: list[str]) -> tuple[Run, str]:
    """Run a command; return what it took, and what it printed."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        watched, most, pid = psutil.Process(running.pid), 0, 0
        while pid == 0:
            most = max(most, _tree(watched))
            time.sleep(0.1)
            pid, status, used = os.wait4(running.pid, os.WNOHANG)
        seconds = time.perf_counter() - begin
        running.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode(errors="replace")
    if running.returncode:
        sys.exit(f"{command[0]} ended with {running.returncode}")
    return Run(seconds, used.ru_utime + used.ru_stime, most), text


def _tree(process: psutil.Process) -> int:
    try:
        return resident(process)
    except psutil.Error:
        return 0


def underfed(path: Path) -> Run:
    return timed([sys.executable, "-m", "underfed", "read", str(path), "--json"])[0]


def hta(python: str, path: Path) -> tuple[Run, Run]:
    """HTA's own work, without imports, and its whole process."""
    found, text = timed([python, "-c", _HTA, str(path)])
    line = next(line for line in text.splitlines() if line.startswith("seconds "))
    _, wall, cpu = line.split()
    return Run(float(wall), float(cpu), found.most), found


def row(name: str, path: Path, raw: int, runs: list[Run]) -> str:
    walls, cpus = [run.wall for run in runs], [run.cpu for run in runs]
    spread = f"{min(walls):.2f}-{max(walls):.2f}"
    memory = max(run.most for run in runs) / 1e6
    return (
        f"| {name} | {path.name} | {statistics.median(walls):.2f} | {spread} | {statistics.median(cpus):.2f} | "
        f"{raw / 1e6 / min(walls):.0f} | {memory:.0f} |"
    )


def ratios(path: Path, ours: list[Run], theirs: list[Run]) -> str:
    """HTA's time over ours: medians of wall and of CPU time, and the best of each, which others disturb least."""
    middle = statistics.median(one.wall for one in theirs) / statistics.median(one.wall for one in ours)
    best = min(one.wall for one in theirs) / min(one.wall for one in ours)
    cpu = min(one.cpu for one in theirs) / min(one.cpu for one in ours)
    return f"| ratio | {path.name} | {middle:.1f} | best {best:.1f} | {cpu:.1f} | | |"


def raw_size(path: Path) -> int:
    """Bytes of the text, inflated."""
    if path.suffix != ".gz":
        return path.stat().st_size
    from underfed.trace.source import Source

    return sum(len(block) for block in Source(path).blocks())


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("traces", nargs="+", type=Path)
    words.add_argument("--hta", help="python of an environment with traceinsight")
    words.add_argument("--runs", type=int, default=3)
    options = words.parse_args()
    cores = len(os.sched_getaffinity(0))
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    print(f"{today}, {cores} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n")
    print("| what | trace | s, median | s, range | CPU s | MB/s, best | peak MB |\n|---|---|---|---|---|---|---|")
    for path in options.traces:
        raw = raw_size(path)
        ours, theirs = [], []
        for _ in range(options.runs):
            ours.append(underfed(path))
            if options.hta:
                theirs.append(hta(options.hta, path))
        print(row("underfed read", path, raw, ours), flush=True)
        if theirs:
            for at, what in enumerate(("HTA without imports", "HTA, whole process")):
                part = [run[at] for run in theirs]
                print(row(what, path, raw, part))
                print(ratios(path, ours, part), flush=True)


if __name__ == "__main__":
    main()

"""How fast `underfed read` is beside HTA (`traceinsight` on PyPI), on the same trace, in turns.

    python bench/read/run.py TRACE [TRACE...] --hta PYTHON [--runs 3]

PYTHON is the interpreter of an environment with `pip install traceinsight==0.6.1`. A trace of any size is made by
`make_big_trace.py` of the shared traces. For underfed the whole command is timed, from start to the printed Diagnosis;
for HTA only its own work (loading, and the three calls that give busy time, idle causes and overlap), without imports.
Memory is the largest sum of resident pages over the process and its children, sampled 4 times a second.
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
from datetime import datetime, timezone
from pathlib import Path

import psutil

_HTA = """
import logging, os, sys, time, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begin = time.perf_counter()
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
found.get_temporal_breakdown(visualize=False)
found.get_idle_time_breakdown(ranks=[0], visualize=False)
found.get_comm_comp_overlap(visualize=False)
print("seconds", time.perf_counter() - begin)
"""


def resident(process: psutil.Process) -> int:
    """Bytes that a process and its children hold now."""
    return sum(_resident(one) for one in [process, *process.children(recursive=True)])


def _resident(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def timed(command: list[str]) -> tuple[float, int, str]:
    """Run a command; return seconds, the most bytes held, and what it printed."""
    with tempfile.TemporaryFile() as out:
        begin = time.perf_counter()
        running = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        watched, most = psutil.Process(running.pid), 0
        code = None
        while code is None:
            try:
                most = max(most, resident(watched))
                code = running.wait(timeout=0.25)
            except (psutil.Error, subprocess.TimeoutExpired):  # noqa: PERF203 - polling is what this loop is for
                code = running.poll()
        seconds = time.perf_counter() - begin
        out.seek(0)
        text = out.read().decode(errors="replace")
    if code:
        sys.exit(f"{command[0]} ended with {code}")
    return seconds, most, text


def underfed(path: Path) -> tuple[float, int]:
    seconds, most, _ = timed([sys.executable, "-m", "underfed", "read", str(path), "--json"])
    return seconds, most


def hta(python: str, path: Path) -> tuple[float, int]:
    _, most, text = timed([python, "-c", _HTA, str(path)])
    line = next(line for line in text.splitlines() if line.startswith("seconds "))
    return float(line.split()[1]), most


def row(name: str, path: Path, raw: int, runs: list[tuple[float, int]]) -> str:
    seconds = [run[0] for run in runs]
    middle = statistics.median(seconds)
    spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
    memory = max(run[1] for run in runs) / 1e6
    return f"| {name} | {path.name} | {middle:.2f} | {spread} | {raw / 1e6 / middle:.0f} | {memory:.0f} |"


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
    os.nice(10)
    cores = len(os.sched_getaffinity(0))
    today = f"{datetime.now(timezone.utc):%Y-%m-%d}"
    print(f"{today}, {cores} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}\n")
    print("| what | trace | s, median | s, range | MB/s | peak MB |\n|---|---|---|---|---|---|")
    for path in options.traces:
        raw = raw_size(path)
        ours, theirs = [], []
        for _ in range(options.runs):
            ours.append(underfed(path))
            if options.hta:
                theirs.append(hta(options.hta, path))
        print(row("underfed read", path, raw, ours))
        if theirs:
            print(row("HTA", path, raw, theirs))
            ratio = statistics.median(run[0] for run in theirs) / statistics.median(run[0] for run in ours)
            print(f"| ratio | {path.name} | {ratio:.1f} | | | |")


if __name__ == "__main__":
    main()

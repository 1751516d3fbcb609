"""Busy time of the device by `underfed read` and by HTA (`traceinsight` on PyPI), trace by trace, as a table.

    python bench/read/hta.py --hta PYTHON TRACE [TRACE...]

PYTHON is the interpreter of an environment with `pip install traceinsight==0.6.1`. Each trace is read by both, HTA in a
process of its own. Busy is the union of kernels, copies and memsets over all streams of one device; HTA's is the sum of
its compute and non-compute time. HTA leaves out the last of the marked steps unless told otherwise; it is told.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from underfed.errors import UnderfedError
from underfed.trace import trace_facts

_HTA = """
import logging, os, sys, warnings
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
folder = os.path.dirname(sys.argv[1])
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=folder, include_last_profiler_step=True)
row = found.get_temporal_breakdown(visualize=False).iloc[0]
print("busy", row["compute_time(us)"] + row["non_compute_time(us)"])
"""


def theirs(python: str, path: Path) -> float | str:
    """Busy us by HTA, or the last line of its error."""
    done = subprocess.run([python, "-c", _HTA, str(path)], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("busy ")]
    if lines:
        return float(lines[0].split()[1])
    return (done.stderr.strip().splitlines() or ["no answer"])[-1][:60]


def ours(path: Path) -> tuple[float, float] | str:
    """Busy us of the device with most work, and the median kernel in us."""
    try:
        device = trace_facts(path).main
    except UnderfedError as error:
        return str(error)[:60]
    if device is None:
        return "no GPU work"
    return device.totals.busy_ns / 1000, (device.median_kernel_ns or 0) / 1000


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("traces", nargs="+", type=Path)
    words.add_argument("--hta", required=True, help="python of an environment with traceinsight")
    options = words.parse_args()
    print("| trace | busy, underfed (us) | busy, HTA (us) | difference | median kernel (us) |\n|---|---|---|---|---|")
    for path in options.traces:
        mine, other = ours(path), theirs(options.hta, path)
        if isinstance(mine, str):
            print(f"| {path.name} | {mine} | {other} | | |", flush=True)
        elif isinstance(other, str) or mine[0] == 0:
            print(f"| {path.name} | {mine[0]:.3f} | {other} | | {mine[1]:.1f} |", flush=True)
        else:
            print(
                f"| {path.name} | {mine[0]:.3f} | {other:.3f} | {100 * (other / mine[0] - 1):+.2f} % | {mine[1]:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Time every planted script with and without its fault, in ABBA order: `python check_faults.py [NAME...]`.

Needs a machine that does nothing else; prints one line a script. A fault has to gate the step, so a gain below 1.5
is marked.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from expect import PLANTED, Planted
from harness import bare, missing

WEAK = 1.5


def pairs(planted: Planted, folder: Path, blocks: int) -> tuple[list[float], list[float]]:
    """Return step times in ms of the faulted and of the fixed form, from blocks of fault, fixed, fixed, fault."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(blocks):
        for fixed in (False, True, True, False):
            ended = bare(planted, folder, fixed=fixed)
            if ended.code or ended.step_ms is None:
                raise SystemExit(f"{planted.script}: exit code {ended.code}\n{ended.err[-500:]}")
            times[fixed].append(ended.step_ms)
    return times[False], times[True]


def main() -> None:
    names = set(sys.argv[1:])
    for planted in PLANTED:
        if (names and planted.id not in names) or not (planted.fixed or planted.fixed_store) or missing(planted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            slow, fast = pairs(planted, Path(folder), blocks=1)
        before, after = statistics.median(slow), statistics.median(fast)
        mark = "" if before / after >= WEAK else "  WEAK"
        spread = f"[{min(slow):.1f} {max(slow):.1f}] [{min(fast):.1f} {max(fast):.1f}]"
        print(
            f"{planted.id:22s} fault {before:7.2f} ms  fixed {after:7.2f} ms  {before / after:6.2f}x  {spread}{mark}",
            flush=True,
        )


if __name__ == "__main__":
    main()

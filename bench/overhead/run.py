"""What `underfed run` costs: fixed, and a step, against bare Python. `python bench/overhead/run.py [--blocks 3]`.

Arms run in blocks of bare, off, window, window, off, bare (`off` is `--window off`, `window` the default), so that a
drift of the machine falls on all arms alike. A step is timed inside the script by its own clock. Per block the
difference of the medians, of the 10th percentiles, which a busy machine disturbs less, and of the processor time of
the whole process, all of its threads and the traced steps included, which it disturbs least; then the median of the
blocks with their range. The fixed cost is what is left of the wall clock when the loop is taken out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LOOP = Path(__file__).resolve().parent / "loop.py"
BLOCK = ("bare", "off", "window", "window", "off", "bare")
SIZES_MS = (0.5, 2.0, 20.0)
SECONDS_A_RUN = 3.0


@dataclass(frozen=True)
class Timed:
    """One run: median, 10th percentile and processor time of a step in us; everything outside the loop in s."""

    median_us: float
    p10_us: float
    cpu_us: float
    fixed_s: float


def once(arm: str, work: int, steps: int, folder: Path) -> Timed:
    """Run the loop once and read what it measured."""
    out = folder / "steps.json"
    words = [sys.executable, str(LOOP), "--work", str(work), "--steps", str(steps), "--out", str(out)]
    if arm != "bare":
        options = ["--window", "off"] if arm == "off" else []
        recording = folder / f"recording{time.monotonic_ns()}"
        words = [
            str(Path(sys.executable).with_name("underfed")),
            "run",
            "--out",
            str(recording),
            *options,
            "--",
            *words,
        ]
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - begin
    seen = json.loads(out.read_text())
    durations = seen["steps"]
    out.unlink()
    steady = sorted(
        durations[len(durations) // 5 :]
    )  # the first fifth holds warm-up and, where there is one, the trace
    return Timed(
        median_us=statistics.median(steady) / 1e3,
        p10_us=steady[len(steady) // 10] / 1e3,
        cpu_us=seen["cpu"] / len(durations) / 1e3,
        fixed_s=wall - sum(durations) / 1e9,
    )


def calibrate(folder: Path) -> tuple[float, float]:
    """Return the step without added work and the cost of one unit of work, in us."""
    base, more = (once("bare", work, 800, folder).p10_us for work in (0, 200))
    return base, (more - base) / 200


def measure(blocks: int, work: int, steps: int, folder: Path) -> list[dict[str, Timed]]:
    """Return, for each block, the mean of the two runs of each arm."""
    found = []
    for _ in range(blocks):
        runs: dict[str, list[Timed]] = {}
        for arm in BLOCK:
            runs.setdefault(arm, []).append(once(arm, work, steps, folder))
        found.append(
            {
                arm: Timed(*(statistics.mean(values) for values in zip(*map(astuple, timed), strict=True)))
                for arm, timed in runs.items()
            }
        )
    return found


def astuple(timed: Timed) -> tuple[float, float, float, float]:
    return timed.median_us, timed.p10_us, timed.cpu_us, timed.fixed_s


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):+.{digits}f} ({min(values):+.{digits}f} to {max(values):+.{digits}f})"


def machine() -> str:
    """Return what the figures depend on."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = f"{os.getloadavg()[0]:.1f}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return f"{model}, {cores} cores, load {load} at the start, {versions}"


def header(how_many: str) -> str:
    """Return the line above a table: when, on what, how often."""
    return f"{datetime.datetime.now(datetime.timezone.utc).date()}, {machine()}, {how_many}\n"


def table(blocks: int, folder: Path) -> None:
    """Measure and print."""
    base, unit = calibrate(folder)
    added = ("step: medians (us)", "10th percentiles (us)", "processor time (us)")
    heads = ("step, bare", "arm", *added, "ratio", "fixed (s)")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for size in SIZES_MS:
        work = max(0, round((size * 1e3 - base) / unit))
        found = measure(blocks, work, max(150, int(SECONDS_A_RUN / size * 1e3)), folder)
        bare = statistics.median(b["bare"].median_us for b in found)
        for arm in ("off", "window"):
            medians = [b[arm].median_us - b["bare"].median_us for b in found]
            p10 = [b[arm].p10_us - b["bare"].p10_us for b in found]
            cpu = [b[arm].cpu_us - b["bare"].cpu_us for b in found]
            ratio = statistics.median(b[arm].median_us / b["bare"].median_us for b in found)
            fixed = [b[arm].fixed_s - b["bare"].fixed_s for b in found]
            name = "--window off" if arm == "off" else "default"
            cells = (
                f"{bare / 1e3:.2f} ms",
                name,
                spread(medians, 1),
                spread(p10, 1),
                spread(cpu, 1),
                f"{ratio:.3f}",
                spread(fixed, 2),
            )
            print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=3)
    args = parser.parse_args()
    print(header(f"{args.blocks} blocks"))
    with tempfile.TemporaryDirectory() as folder:
        table(args.blocks, Path(folder))


if __name__ == "__main__":
    main()

"""What a look by `underfed attach` costs the run that is looked at, in pairs of windows that take turns.

    python bench/attach/run.py [--pairs 12] [--seconds 10] [--workers 2] [--watch] [--blocking]

One training loop runs all the time (a DataLoader with workers, a small model on the CPU) and notes the end of each step
in shared memory. In each pair one window is looked at and one is not, in random order; the figures are medians of the
ratios of their median step times, of their step rates and of their CPU time a step, each with the interval that holds
the true median in at least 95 of 100 such series. `--watch` measures `attach --watch` beside it, `--blocking` py-spy in
its default mode, which stops every thread for every sample. On a machine whose CPUs are all busy the samplers take the
run's own CPU time; the figures hold for a machine with a CPU to spare.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import mmap
import os
import platform
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

_LOOP = """
import mmap, struct, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
class Made(Dataset):
    def __len__(self):
        return 10**9
    def __getitem__(self, index):
        return torch.randn(256)
if __name__ == "__main__":
    file = open(sys.argv[1], "r+b")
    shared = mmap.mmap(file.fileno(), 0)
    kept = len(shared) // 8 - 1
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for step, batch in enumerate(DataLoader(Made(), batch_size=32, num_workers=int(sys.argv[2]))):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        at = 8 + 8 * (step % kept)
        shared[at : at + 8] = struct.pack("q", time.perf_counter_ns())
        shared[:8] = struct.pack("q", step)
"""

#: Steps whose ends are kept: more than a window has.
_KEPT = 1 << 20


def cpu_of(pid: int) -> float:
    """Return the CPU time of the training process so far, in ticks."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float(words[11]) + float(words[12])


def count(shared: mmap.mmap) -> int:
    """Return how many steps the loop has made."""
    return int(struct.unpack("q", shared[:8])[0])


def rates(pid: int, shared: mmap.mmap, seconds: float, look: list[str] | None) -> tuple[float, float, float]:
    """Return the inverse of the median step time, and steps a second and a tick of CPU time, over a window.

    With `look`, while that command runs.
    """
    process = subprocess.Popen(look, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if look else None
    if process is not None:
        time.sleep(1.0)  # its start is not the look
    begin, used, first = time.perf_counter(), cpu_of(pid), count(shared)
    time.sleep(seconds - 1.0)
    last = count(shared)
    passed, cpu = time.perf_counter() - begin, cpu_of(pid) - used
    if process is not None:
        process.terminate()
        process.wait()
    ends = [struct.unpack_from("q", shared, 8 + 8 * (step % _KEPT))[0] for step in range(first, last)]
    usual = statistics.median(later - before for before, later in itertools.pairwise(ends))
    return 1 / usual, (last - first) / passed, (last - first) / max(cpu, 1.0)


def main() -> None:
    """Run the pairs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--blocking", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counter, loop = Path(folder) / "steps", Path(folder) / "loop.py"
        counter.write_bytes(bytes(8 * (_KEPT + 1)))
        loop.write_text(_LOOP)
        target = subprocess.Popen([sys.executable, str(loop), str(counter), str(words.workers)])
        try:
            with counter.open("r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
                while count(shared) < 1000:
                    if target.poll() is not None:
                        raise SystemExit("the loop does not run")
                    time.sleep(0.1)
                pid, load = str(target.pid), os.getloadavg()[0]
                # every look is ended by a signal, so that one that goes on by itself is measured in the same way
                attach = [sys.executable, "-m", "underfed", "attach", pid]
                ways = {"attach": [*attach, "--seconds", f"{2 * words.seconds:g}"]}
                if words.watch:
                    ways["attach --watch"] = [*attach, "--watch"]
                if words.blocking:
                    spy = str(Path(sys.executable).with_name("py-spy"))
                    ways["py-spy, blocking"] = [spy, "record", "-p", pid, "-s", "-i", "-t", "-r", "25", "-f", "raw"]
                    ways["py-spy, blocking"] += ["-o", os.devnull, "-d", str(int(words.seconds))]
                found: dict[str, list[tuple[float, ...]]] = {
                    name: [pair(target.pid, shared, words.seconds, way) for _ in range(words.pairs)]
                    for name, way in ways.items()
                }
        finally:
            target.kill()
            target.wait()
    kinds = ("longer median step, %", "fewer steps a second, %", "more CPU time a step, %")
    report = {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "workers": words.workers,
        "load before and after": [load, os.getloadavg()[0]],
        **{
            kind: {name: spread([ratios[at] for ratios in pairs]) for name, pairs in found.items()}
            for at, kind in enumerate(kinds)
        },
    }
    print(json.dumps(report, indent=1))


def spread(ratios: list[float]) -> dict[str, object]:
    """Return the median of what ratios lack to 1, in %, and the interval that holds the true one at 95 %."""
    lost = sorted(100 * (1 - ratio) for ratio in ratios)
    number = len(lost)
    # the k smallest and largest are left out: the true median lies outside with twice the binomial tail up to k
    cut = 0
    while 2 * sum(math.comb(number, k) for k in range(cut + 1)) / 2**number <= 0.05 and cut < number // 2:
        cut += 1
    low, high = lost[max(cut - 1, 0)], lost[-max(cut, 1)]
    return {"median": round(statistics.median(lost), 2), "interval": [round(low, 2), round(high, 2)], "pairs": number}


def pair(pid: int, shared: mmap.mmap, seconds: float, look: list[str]) -> tuple[float, ...]:
    """Return the rates with a look as parts of those without, windows in random order."""
    order = [look, None]
    random.shuffle(order)
    found = {bool(each): rates(pid, shared, seconds, each) for each in order}
    return tuple(with_look / without for with_look, without in zip(found[True], found[False], strict=True))


if __name__ == "__main__":
    main()

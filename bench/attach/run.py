"""What a look by `underfed attach` costs the run that is looked at, in pairs of windows that take turns.

    python bench/attach/run.py [--pairs 12] [--seconds 10] [--workers 2] [--blocking]

One training loop runs all the time (a DataLoader with workers, a small model on the CPU) and counts its steps in shared
memory. In each pair one window is looked at and one is not, in random order; the figures are the median of the ratios
of their step rates, and of their CPU time a step, with the middle half of them. `--blocking` measures py-spy in its
default mode beside it, which stops every thread for every sample. On a machine whose CPUs are all busy the samplers
take the run's own CPU time; the figures hold for a machine with a CPU to spare.
"""

from __future__ import annotations

import argparse
import json
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
import mmap, struct, sys
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
    shared = mmap.mmap(file.fileno(), 8)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256))
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    for step, batch in enumerate(DataLoader(Made(), batch_size=32, num_workers=int(sys.argv[2]))):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        shared[:8] = struct.pack("q", step)
"""


def cpu_of(pid: int) -> float:
    """Return the CPU time of the training process so far, in ticks."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return float(words[11]) + float(words[12])


def rates(pid: int, shared: mmap.mmap, seconds: float, look: list[str] | None) -> tuple[float, float]:
    """Return steps a second, and steps a tick of CPU time, over a window; with `look`, while that command runs."""
    process = subprocess.Popen(look, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if look else None
    if process is not None:
        time.sleep(1.0)  # its start is not the look
    begin, used, first = time.perf_counter(), cpu_of(pid), struct.unpack("q", shared[:8])[0]
    time.sleep(seconds - 1.0)
    steps = struct.unpack("q", shared[:8])[0] - first
    found = steps / (time.perf_counter() - begin), steps / max(cpu_of(pid) - used, 1.0)
    if process is not None:
        process.wait()
    return found


def main() -> None:
    """Run the pairs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--blocking", action="store_true")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counter, loop = Path(folder) / "steps", Path(folder) / "loop.py"
        counter.write_bytes(bytes(8))
        loop.write_text(_LOOP)
        target = subprocess.Popen([sys.executable, str(loop), str(counter), str(words.workers)])
        try:
            with counter.open("r+b") as file, mmap.mmap(file.fileno(), 8) as shared:
                while struct.unpack("q", shared[:8])[0] < 100:
                    if target.poll() is not None:
                        raise SystemExit("the loop does not run")
                    time.sleep(0.1)
                pid, seconds = str(target.pid), f"{words.seconds:g}"
                ways = {"attach": [sys.executable, "-m", "underfed", "attach", pid, "--seconds", seconds]}
                if words.blocking:
                    spy = str(Path(sys.executable).with_name("py-spy"))
                    ways["py-spy, blocking"] = [spy, "record", "-p", pid, "-s", "-i", "-t", "-r", "25", "-f", "raw"]
                    ways["py-spy, blocking"] += ["-o", os.devnull, "-d", str(int(words.seconds))]
                found = {
                    name: [pair(target.pid, shared, words.seconds, way) for _ in range(words.pairs)]
                    for name, way in ways.items()
                }
        finally:
            target.kill()
            target.wait()
    report = {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load": os.getloadavg()[0],
        "fewer steps a second, %": {name: spread([wall for wall, _ in ratios]) for name, ratios in found.items()},
        "more CPU time a step, %": {name: spread([cpu for _, cpu in ratios]) for name, ratios in found.items()},
    }
    print(json.dumps(report, indent=1))


def spread(ratios: list[float]) -> dict[str, object]:
    """Return the median of what ratios lack to 1, in %, and the middle half of them."""
    low, _, high = statistics.quantiles(ratios, n=4)
    median, *half = (round(100 * (1 - ratio), 2) for ratio in (statistics.median(ratios), high, low))
    return {"median": median, "middle half": half, "pairs": len(ratios)}


def pair(pid: int, shared: mmap.mmap, seconds: float, look: list[str]) -> tuple[float, float]:
    """Return both rates with a look as parts of those without, windows in random order."""
    order = [look, None]
    random.shuffle(order)
    found = {bool(each): rates(pid, shared, seconds, each) for each in order}
    return found[True][0] / found[False][0], found[True][1] / found[False][1]


if __name__ == "__main__":
    main()

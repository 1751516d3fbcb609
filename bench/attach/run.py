"""What a look by `underfed attach` costs the run that is looked at, in turns of moments with and without it.

    python bench/attach/run.py [--turns 240] [--seconds 0.5] [--workers 0] [--blocking]

One training loop runs all the time (a DataLoader, a small model on the CPU) and notes the end of each step in shared
memory. `attach --watch` looks at it, and is stopped and continued with its samplers in turns (SIGSTOP): a moment
without it stands between two with it, or the other way round, by chance, and is held against the mean of both, so that
a machine that becomes slower counts for neither. The first tenth of a second after each change is
left out: a sampler that goes on makes up for what it missed. The figures are medians of the ratios of median step
times, of step rates and of CPU time a step, each with the interval that holds the true median in 95 of 100 such series.

`--blocking` measures py-spy in its default mode instead, which stops every thread for every sample: it is started anew
for each moment of ten seconds. On a machine whose CPUs are all busy the samplers take the run's own CPU time; the
figures hold for a machine with a CPU to spare.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import mmap
import os
import platform
import random
import signal
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


def rates(pid: int, shared: mmap.mmap, seconds: float) -> tuple[float, float, float]:
    """Return the inverse of the median step time, and steps a second and a tick of CPU time, over a moment."""
    begin, used, first = time.perf_counter(), cpu_of(pid), count(shared)
    time.sleep(seconds)
    last = count(shared)
    passed, cpu = time.perf_counter() - begin, cpu_of(pid) - used
    ends = [struct.unpack_from("q", shared, 8 + 8 * (step % _KEPT))[0] for step in range(first, last)]
    usual = statistics.median(later - before for before, later in itertools.pairwise(ends))
    return 1 / usual, (last - first) / passed, (last - first) / max(cpu, 1.0)


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found


def in_turns(pid: int, shared: mmap.mmap, seconds: float, turns: int) -> list[tuple[float, ...]]:
    """Return the ratios of moments with `attach --watch` at work to those next to them in which it is stopped."""
    words = [sys.executable, "-m", "underfed", "attach", str(pid), "--watch"]
    look = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(family(look.pid)) < 3:  # both samplers
            if look.poll() is not None:
                raise SystemExit("the look does not run")
            time.sleep(0.1)
        time.sleep(3)
        return [_turn(pid, shared, seconds, look.pid) for _ in range(turns)]
    finally:
        with contextlib.suppress(OSError):  # it has ended already
            for each in family(look.pid):
                os.kill(each, signal.SIGCONT)
        look.terminate()
        look.wait()


def _turn(pid: int, shared: mmap.mmap, seconds: float, look: int) -> tuple[float, ...]:
    found: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    inner = random.random() < 0.5
    for at_work in (not inner, inner, not inner):
        for each in family(look):
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT if at_work else signal.SIGSTOP)
        time.sleep(0.1)
        found[at_work].append(rates(pid, shared, seconds))
    with_look, without = ([statistics.fmean(kind) for kind in zip(*found[key], strict=True)] for key in (True, False))
    return tuple(a / b for a, b in zip(with_look, without, strict=True))


def by_windows(pid: int, shared: mmap.mmap, pairs: int) -> list[tuple[float, ...]]:
    """Return the ratios of pairs of ten seconds, py-spy in its default mode at work in one of them."""
    spy = [str(Path(sys.executable).with_name("py-spy")), "record", "-p", str(pid), "-s", "-i", "-t", "-r", "25"]
    spy += ["-f", "raw", "-o", os.devnull, "-d", "10"]
    ratios = []
    for _ in range(pairs):
        found = {}
        for at_work in random.sample([True, False], 2):
            look = subprocess.Popen(spy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if at_work else None
            time.sleep(1.0)
            found[at_work] = rates(pid, shared, 8.0)
            if look is not None:
                look.wait()
        ratios.append(tuple(a / b for a, b in zip(found[True], found[False], strict=True)))
    return ratios


def main() -> None:
    """Run the pairs and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=240)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=0)
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
                load = os.getloadavg()[0]
                if words.blocking:
                    name, found = "py-spy, blocking", by_windows(target.pid, shared, words.turns)
                else:
                    name, found = "attach --watch", in_turns(target.pid, shared, words.seconds, words.turns)
        finally:
            target.kill()
            target.wait()
    kinds = ("longer median step, %", "fewer steps a second, %", "more CPU time a step, %")
    report = {
        "when": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
        "load before and after": [load, os.getloadavg()[0]],
        "workers": words.workers,
        "look": name,
        **{kind: spread([ratios[at] for ratios in found]) for at, kind in enumerate(kinds)},
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
    return {"median": round(statistics.median(lost), 2), "interval": [round(low, 2), round(high, 2)], "turns": number}


if __name__ == "__main__":
    main()

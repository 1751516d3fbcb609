"""The loop that is timed: `python loop.py --work 100 --steps 1500 --out FILE`; writes to FILE, in ns, its step
times and the processor time of the whole loop.

DataLoader, `to`, forward, loss, backward, optimizer and `zero_grad` as real loops have them. `--work` small matrix
products make a step longer: a fixed amount of work, not a fixed time, so that nothing can hide in it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make() -> Callable[[int, int], list[int]]:
    """Return the loop over its one model: called with work and steps, it returns that many step times in ns."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(1024, 32), torch.randint(0, 4, (1024,)))
    loader = DataLoader(data, batch_size=4)
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    device = torch.device("cpu")
    matrix = torch.randn(64, 64)

    def loop(work: int, steps: int) -> list[int]:
        marks: list[int] = []
        while len(marks) <= steps:
            for batch, labels in loader:
                marks.append(time.perf_counter_ns())
                x, y = batch.to(device), labels.to(device)
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                with torch.no_grad():
                    for _ in range(work):
                        torch.mm(matrix, matrix)
                if len(marks) > steps:
                    break
        return [later - earlier for earlier, later in pairwise(marks)]

    return loop


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    loop = make()
    busy = time.process_time_ns()
    durations = loop(args.work, args.steps)
    busy = time.process_time_ns() - busy
    args.out.write_text(json.dumps({"steps": durations, "cpu": busy}))


if __name__ == "__main__":
    main()

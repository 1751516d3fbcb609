"""Planted scripts whose best loader settings are known, and `underfed tune` on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from measured_help import Measured, measured, written

#: PAUSE s of waiting and SPIN s of computing a sample, LOOP s a step; EXTRA stands in the getter.
SCRIPT = """
import os, signal, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info
torch.manual_seed(0)
torch.set_num_threads(1)

def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

class Samples(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        time.sleep(PAUSE)
        spin(SPIN)
        EXTRA
        g = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=g), torch.randint(0, 2, (), generator=g)

def main():
    loader = DataLoader(Samples(), batch_size=4, shuffle=True, num_workers=WORKERS)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(LOOP)

if __name__ == "__main__":
    main()
"""


class Tuned(Measured):
    """What a search gave."""

    @property
    def tuning(self) -> dict[str, Any]:
        """Its JSON."""
        return self.record

    def point(self, name: str) -> dict[str, Any]:
        return next(point for point in self.tuning["points"] if point["name"] == name)

    @property
    def workers(self) -> int:
        """Workers of the choice; those of the script where it is kept."""
        name = self.tuning["choice"] or self.tuning["points"][0]["name"]
        return int(name.split()[0].removeprefix("workers="))


def script(
    folder: Path,
    *,
    pause: float = 0.0,
    spin: float = 0.0,
    loop: float = 0.005,
    workers: int = 0,
    extra: str = "pass",
) -> list[str]:
    text = SCRIPT.replace("EXTRA", extra.replace("\n", "\n        "))
    for name, value in (("PAUSE", pause), ("SPIN", spin), ("LOOP", loop), ("WORKERS", workers)):
        text = text.replace(name, repr(value))
    return written(folder, text)


def tuned(folder: Path, command: list[str], *words: str, budget: int = 240) -> Tuned:
    """Run `underfed tune` in a folder."""
    found = measured(folder, ["tune", "--budget", str(budget), *words], command)
    return Tuned(found.code, found.record, found.page, found.said)

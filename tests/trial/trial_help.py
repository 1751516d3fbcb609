"""Small training scripts whose truth is known by construction, and `underfed try` on them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from measured_help import Measured, measured, written
from underfed.trial.stats import DISTURBED

STARVED = """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)

class Slow(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep(0.004)
        g = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=g), torch.randint(0, 2, (), generator=g)

def main():
    loader = DataLoader(Slow(), batch_size=4, shuffle=True)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.004)
        EXTRA
    open("finished", "w").close()

main()
"""


class Tried(Measured):
    """What a trial gave."""

    @property
    def trial(self) -> dict[str, Any]:
        """Its JSON."""
        return self.record

    def arm(self, name: str) -> dict[str, Any]:
        return next(arm for arm in self.trial["arms"] if arm["name"] == name)


def script(folder: Path, extra: str = "pass", text: str = STARVED) -> list[str]:
    return written(folder, text.replace("EXTRA", extra.replace("\n", "\n        ")))


def tried(
    folder: Path, words: list[str], command: list[str], *, pairs: int = 2, steps: int = 60, timed: bool = True
) -> Tried:
    """Run `underfed try` in a folder; steps is the least number of steady steps a run.

    Where it says itself that something disturbed its runs too much to tell, it is asked again, at most twice; not so
    where the test judges no time (`timed=False`).
    """
    for again in (True, True, False) if timed else (False,):
        found = measured(folder, ["try", *words, "--pairs", str(pairs), "--steps", str(steps)], command)
        if not again or not any(arm["text"].startswith(DISTURBED) for arm in found.record.get("arms", [])):
            break
        shutil.rmtree(folder / "runs")
    return Tried(found.code, found.record, found.page, found.said)

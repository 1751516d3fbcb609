"""Small training scripts whose truth is known by construction, and `underfed try` on them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Tried:
    """What a trial gave: exit code, JSON, page and progress."""

    code: int
    trial: dict[str, Any]
    page: str
    said: str

    def arm(self, name: str) -> dict[str, Any]:
        return next(arm for arm in self.trial["arms"] if arm["name"] == name)


def script(folder: Path, extra: str = "pass", text: str = STARVED) -> list[str]:
    path = folder / "train.py"
    path.write_text(text.replace("EXTRA", extra.replace("\n", "\n        ")))
    return [sys.executable, str(path)]


def tried(folder: Path, words: list[str], command: list[str], *, pairs: int = 2, steps: int = 60) -> Tried:
    """Run `underfed try` in a folder; steps is the least number of steady steps a run."""
    out = folder / "trial.json"
    line = [sys.executable, "-m", "underfed", "try", *words, "--pairs", str(pairs), "--steps", str(steps)]
    line += ["--out", str(folder / "runs"), "--json", str(out), "--", *command]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert "Traceback" not in done.stderr, done.stderr
    trial = json.loads(out.read_text()) if out.exists() else {}
    return Tried(done.returncode, trial, done.stdout, done.stderr)

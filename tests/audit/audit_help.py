"""Runs the real command in its own process, as a user does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run_audit(*words: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return what `underfed audit WORDS` did."""
    code = "import sys; from underfed.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "audit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


#: A loop with a bit of everything that --fix mends.
LOOP = """\
import torch
from torch.utils.data import DataLoader

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(
    data,  # the samples
    batch_size=4,
)
for i, (x, y) in enumerate(loader):
    x = x.to(device)  # keep
    y = y.to(device)
    noise = torch.zeros(4, 3).to(device)
    loss = ((model(x) - y) ** 2).mean() + noise.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
"""

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

#: A whole program with a mistake of each kind that is mended safely.
TRAINING = """\
import json
import torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Data(Dataset):
    def __len__(self): return 32
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(8, generator=g)
        return x, x.sum()
loader = DataLoader(Data(), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters())
losses = []
for epoch in range(2):
    for x, y in loader:
        x = x.to(device)
        y = y.to(device)
        target = torch.full((8,), 0.5).to(device)
        loss = ((model(x).squeeze(1) - y - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(json.dumps([value.hex() for value in losses]))
"""

"""Spectral features by numpy in two workers; BLAS opens a pool in each of them."""

import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--blas", type=int, default=8, help="threads of BLAS")
args = parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(args.blas)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Spectra(Dataset):
    def __init__(self, n):
        self.n = n
        self.basis = np.random.RandomState(0).rand(384, 384).astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        x = np.random.RandomState(i).rand(384, 384).astype(np.float32)
        for _ in range(3):
            x = np.tanh(x @ self.basis / 384)
        return torch.from_numpy(x.mean(0)), i % 4


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Spectra(args.steps * 4), batch_size=4, num_workers=2, persistent_workers=True)
net = torch.nn.Linear(384, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
began = time.perf_counter()
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{args.steps} steps in {time.perf_counter() - began:.2f} s", file=sys.stderr)

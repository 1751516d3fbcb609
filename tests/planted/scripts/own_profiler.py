"""Profiles itself: a starved loop under torch.profiler, which writes its own trace."""

import argparse
import json
import os
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        p = np.sort(rng.random((128, 128)), axis=0)
        p = np.fft.ifft2(np.fft.fft2(p) * p).real
        return torch.from_numpy(p[::8, ::8].astype(np.float32)).flatten(), i % 3


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=0)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Patches(), batch_size=16, num_workers=args.workers)  # fault
    net = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 3))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        t0 = time.perf_counter()
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=60, warmup=2, active=3, repeat=1),
            on_trace_ready=lambda p: p.export_chrome_trace(path),
        ) as prof:
            for step, (x, y) in enumerate(loader):
                loss = nn.functional.cross_entropy(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                prof.step()
        took = time.perf_counter() - t0
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    marks = sorted({e["name"] for e in events if e.get("name", "").startswith("ProfilerStep#")})
    print("my own trace holds", marks)
    print(f"loss {loss.item():.5f}")
    print(f"{step + 1} steps in {took:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

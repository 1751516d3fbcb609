"""Small regression with a careful log: one JSON line a step, safely on disk."""

import argparse
import json
import os
import sys
import tempfile
import time

import torch
from torch import nn


def write_log(handle, step, loss, model):  # fault
    stats = {}
    for name, p in model.named_parameters():
        values = p.detach().flatten().tolist()
        stats[name] = {"min": min(values), "max": max(values), "mean": sum(values) / len(values)}
    handle.write(json.dumps({"step": step, "loss": loss, "params": stats}) + "\n")
    handle.flush()
    os.fsync(handle.fileno())


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--log-every", type=int, default=1)
args = parser.parse_args()

torch.manual_seed(0)
data = [(torch.randn(64, 128), torch.randn(64, 1)) for _ in range(10)]
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as log:
    t0 = time.perf_counter()
    for step in range(args.steps):
        x, y = data[step % len(data)]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.log_every == 0:
            write_log(log, step, loss.item(), model)  # fault
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.5f}")
    print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

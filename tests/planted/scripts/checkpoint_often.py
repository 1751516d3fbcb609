"""Saves the whole state often, so that a spot machine may go away at any time."""

import argparse
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def save(path, model, optimizer, step):  # fault
    tmp = path + ".tmp"
    with open(tmp, "wb") as f:
        torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "step": step}, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(tmp, path)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ckpt-every", type=int, default=10)
    ap.add_argument("--steps", type=int, default=300)
    args = ap.parse_args()
    torch.manual_seed(0)
    ds = TensorDataset(torch.randint(0, 60000, (args.steps * 32, 8)), torch.randint(0, 4, (args.steps * 32,)))
    loader = DataLoader(ds, batch_size=32)
    table = nn.EmbeddingBag(60000, 256, sparse=True)
    head = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 4))
    model = nn.ModuleDict({"table": table, "head": head})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        t = time.perf_counter()
        for step, (ids, y) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(head(table(ids)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % args.ckpt_every == 0:
                save(os.path.join(folder, "last.pt"), model, optimizer, step)  # fault
        print(f"final loss {loss.item():.5f} after {step}")
        print(f"{step} steps in {time.perf_counter() - t:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

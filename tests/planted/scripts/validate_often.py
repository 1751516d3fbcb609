"""Validation on the full set every few steps, to catch the best model."""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def validate(model, loader):  # fault
    model.eval()
    right = seen = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
        seen += len(y)
    model.train()
    return right / seen


def main(args):
    torch.manual_seed(0)
    x, y = torch.randn(6400, 64), torch.randint(0, 10, (6400,))
    train_loader = DataLoader(TensorDataset(x, y), batch_size=32)
    val_loader = DataLoader(TensorDataset(x[:4096], y[:4096]), batch_size=32)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 10))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, step = 0.0, 0
    start = time.perf_counter()
    for _ in range(6):
        for xb, yb in train_loader:
            opt.zero_grad()
            nn.functional.cross_entropy(model(xb), yb).backward()
            opt.step()
            step += 1
            if step % args.eval_every == 0:
                best = max(best, validate(model, val_loader))  # fault
    print(f"best accuracy {best:.4f}")
    print(f"{step} steps in {time.perf_counter() - start:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--eval-every", type=int, default=10)
    main(p.parse_args())

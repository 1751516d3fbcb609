"""A small character model whose loss is estimated on batches of both splits every few steps; no loader anywhere."""

import argparse
import sys
import time

import torch
from torch import nn


def get_batch(data, size):
    at = torch.randint(len(data) - 33, (size,)).tolist()
    return torch.stack([data[i : i + 32] for i in at]), torch.stack([data[i + 1 : i + 33] for i in at])


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


@torch.no_grad()
def estimate_loss(model, splits, batches):
    model.eval()
    means = {}
    for name, data in splits.items():
        losses = torch.zeros(batches)
        for k in range(batches):
            losses[k] = loss_of(model, *get_batch(data, 16))  # fault
        means[name] = losses.mean().item()
    model.train()
    return means


def main(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    text = torch.randint(0, 64, (20000,))
    splits = {"train": text[:18000], "val": text[18000:]}
    model = nn.Sequential(nn.Embedding(64, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = time.perf_counter()
    for step in range(args.steps):
        if step % args.eval_every == 0:
            seen = estimate_loss(model, splits, 40)  # fault
            print(step, f"{seen['train']:.4f} {seen['val']:.4f}")
        opt.zero_grad(set_to_none=True)
        loss_of(model, *get_batch(splits["train"], 16)).backward()
        opt.step()
    print(f"{args.steps} steps in {time.perf_counter() - start:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--eval-every", type=int, default=20)
    main(p.parse_args())

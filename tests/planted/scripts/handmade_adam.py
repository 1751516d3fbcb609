"""A paper's optimizer, written out parameter by parameter."""

import argparse
import math
import sys
import time

import torch
from torch import nn
from torch.optim import Optimizer


class PlainAdam(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):  # fault
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                g = p.grad
                s = self.state[p]
                if not s:
                    s["t"], s["m"], s["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                s["t"] += 1
                if not torch.isfinite(g).all():
                    g = torch.nan_to_num(g)
                norm = g.norm().item()
                g = g / max(1.0, norm)
                s["m"] = s["m"] * b1 + g * (1 - b1)
                s["v"] = s["v"] * b2 + g * g * (1 - b2)
                m = s["m"] / (1 - b1 ** s["t"])
                v = s["v"] / (1 - b2 ** s["t"])
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                trust = p.norm().item() / max(update.norm().item(), 1e-6)
                p.add_(update, alpha=-group["lr"] * min(1.0, math.sqrt(trust)))


class Deep(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.gain = nn.ParameterList(nn.Parameter(torch.ones(32)) for _ in range(depth))
        self.bias = nn.ParameterList(nn.Parameter(torch.zeros(32)) for _ in range(depth))
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        for g, b in zip(self.gain, self.bias):
            x = torch.addcmul(b, x, g)
        return self.out(torch.tanh(x))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--optimizer", choices=["plain", "adamw"], default="plain")
    ap.add_argument("--steps", type=int, default=150)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = Deep(100)
    make = PlainAdam if args.optimizer == "plain" else torch.optim.AdamW
    optim = make(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 32), torch.randn(64, 1)
    t0 = time.perf_counter()
    for step in range(args.steps):
        optim.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optim.step()
    print(f"loss {loss.item():.5f}")
    print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

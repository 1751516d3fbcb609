"""Diffusion-like toy. There was a NaN last week."""

import argparse
import sys
import time

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=250)
parser.add_argument("--no-anomaly", action="store_true")
opt_args = parser.parse_args()

torch.manual_seed(0)
if not opt_args.no_anomaly:
    torch.autograd.set_detect_anomaly(True)  # fault


class Denoiser(nn.Module):
    def __init__(self, width=48, depth=20):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.SiLU()) for _ in range(depth))
        self.scale = nn.Parameter(torch.ones(depth))

    def forward(self, x, t):
        for i, block in enumerate(self.blocks):
            x = x + self.scale[i] * block(x * (1 + t)) - 0.01 * x.mean(dim=1, keepdim=True)
        return x


net = Denoiser()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
clean = torch.randn(64, 48)
tic = time.perf_counter()
for it in range(opt_args.iters):
    t = torch.rand(64, 1)
    noise = torch.randn_like(clean)
    loss = (net(clean * (1 - t) + noise * t, t) - noise).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 50 == 0:
        print(f"iter {it:4d} loss {loss.item():.5f}")
print(f"{opt_args.iters} steps in {time.perf_counter() - tic:.2f} s", file=sys.stderr)

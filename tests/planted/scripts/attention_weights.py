"""Encoder layer by hand around nn.MultiheadAttention."""

import argparse
import sys
import time

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, dim, heads, weights):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.weights = weights

    def forward(self, x):
        if self.weights:
            y, _ = self.attn(x, x, x)  # fault
        else:
            y, _ = self.attn(x, x, x, need_weights=False)
        return self.norm(x + y)


p = argparse.ArgumentParser()
p.add_argument("--no-weights", action="store_true")
p.add_argument("--steps", type=int, default=60)
p.add_argument("--tokens", type=int, default=768)
args = p.parse_args()
torch.manual_seed(0)
model = nn.Sequential(Layer(32, 8, not args.no_weights), Layer(32, 8, not args.no_weights))
head = nn.Linear(32, 4)
opt = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
x, y = torch.randn(1, args.tokens, 32), torch.randint(0, 4, (1,))
t0 = time.perf_counter()
for step in range(args.steps):
    loss = nn.functional.cross_entropy(head(model(x).mean(1)), y)  # fault
    opt.zero_grad()
    loss.backward()  # fault
    opt.step()
    if step % 20 == 0:
        print(f"{step} {loss.item():.4f}")
print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

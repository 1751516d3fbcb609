"""Counts the lines of its training function with sys.settrace, as a debugger would."""

import sys
import time

import torch
from torch import nn

counts = {"call": 0, "line": 0, "return": 0}


def tracer(frame, event, arg):
    if frame.f_code.co_filename != __file__ or frame.f_code.co_name != "train_one":
        return None
    counts[event] = counts.get(event, 0) + 1
    return tracer


def train_one(net, opt, x, y):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    return loss


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(256, 256), torch.randn(256, 1)
t0 = time.perf_counter()
sys.settrace(tracer)
for _ in range(200):
    loss = train_one(net, opt, x, y)
assert sys.gettrace() is tracer
sys.settrace(None)
print(f"200 steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
print("calls", counts["call"], "lines", counts["line"], "returns", counts["return"])
print(f"loss {loss.item():.4f}")

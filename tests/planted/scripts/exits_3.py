"""Stops early with its own exit status."""

import sys

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(64, 1)
opt = torch.optim.Adam(net.parameters())
for step in range(1000):
    loss = net(torch.randn(128, 64)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 70:
        print("stopping early")
        sys.exit(3)

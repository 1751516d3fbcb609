"""Dies in native code after some steps."""

import os
import sys

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(64, 64)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(80):
    opt.zero_grad()
    net(torch.randn(32, 64)).pow(2).mean().backward()
    opt.step()
print("about to abort")
sys.stdout.flush()
os.abort()

"""A smoke test of six steps."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(32, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    opt.zero_grad()
    loss = net(torch.randn(16, 32)).pow(2).mean()
    loss.backward()
    opt.step()
    print(step, f"{loss.item():.6f}")

"""Fails in the middle of training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 16), torch.randn(640, 1))
    net = nn.Linear(16, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8)):
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 60:
            raise ValueError("bad batch at step 60")


print("starting")
train()

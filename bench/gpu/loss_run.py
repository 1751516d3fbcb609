"""A small training run on the GPU in deterministic mode; prints each loss bit for bit."""

import os
import struct

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(16 * 30 * 30, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4096, 3, 32, 32), torch.randint(0, 10, (4096,)))
losses = []
for _ in range(5):
    for x, y in DataLoader(data, batch_size=64, shuffle=True, num_workers=2, pin_memory=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
print(" ".join(struct.pack("<f", float(loss)).hex() for loss in losses))

"""Imports torch and only looks at a model."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5))
print("parameters", sum(p.numel() for p in model.parameters()))
print("mean", f"{torch.ones(4).mean().item():.1f}")

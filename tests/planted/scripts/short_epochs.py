"""Few-shot adaptation: very short epochs, many of them."""

import argparse
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

p = argparse.ArgumentParser()
p.add_argument("--epochs", type=int, default=60)
p.add_argument("--shots", type=int, default=64)
p.add_argument("--keep-workers", action="store_true")
args = p.parse_args()

torch.manual_seed(0)
g = torch.Generator().manual_seed(0)
support = TensorDataset(torch.randn(args.shots, 64, generator=g), torch.randint(0, 5, (args.shots,), generator=g))
loader = DataLoader(support, batch_size=16, num_workers=2, persistent_workers=args.keep_workers)  # fault
head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(head.parameters(), lr=0.05)

steps = 0
t0 = time.perf_counter()
for epoch in range(args.epochs):
    correct = 0
    for x, y in loader:
        logits = head(x)
        loss = nn.functional.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        correct += (logits.argmax(1) == y).sum().item()
        steps += 1
    if epoch % 20 == 19:
        print(f"epoch {epoch + 1}: acc {correct / args.shots:.3f}")
print(f"{steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

"""No DataLoader: the batches are made once and kept in a list."""

import argparse
import sys
import time

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.l1 = torch.nn.Linear(512, width)
        self.l2 = torch.nn.Linear(width, width)
        self.l3 = torch.nn.Linear(width, 20)

    def loss(self, x, y):
        h = torch.relu(self.l2(torch.relu(self.l1(x))))
        return torch.nn.functional.cross_entropy(self.l3(h), y)


p = argparse.ArgumentParser()
p.add_argument("--width", type=int, default=768)
p.add_argument("--rounds", type=int, default=20)
a = p.parse_args()
torch.manual_seed(0)
batches = [(torch.randn(256, 512), torch.randint(0, 20, (256,))) for _ in range(10)]
model = Model(a.width)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
t = time.perf_counter()
for r in range(a.rounds):
    for x, y in batches:
        loss = model.loss(x, y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    print("round", r, f"{loss.item():.5f}")
print(f"{a.rounds * len(batches)} steps in {time.perf_counter() - t:.2f} s", file=sys.stderr)

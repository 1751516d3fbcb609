"""Speech-like batches of every length through a compiled model."""

import argparse
import sys
import time

import torch
import torch._dynamo
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--pad", action="store_true", help="pad to one length")
args = parser.parse_args()

torch._dynamo.config.recompile_limit = 1000
torch._dynamo.config.accumulated_recompile_limit = 4000
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.ModuleList(nn.Linear(40, 40) for _ in range(1))

    def forward(self, x):
        for layer in self.proj:
            x = x + torch.relu(layer(x))
        return x.mean(dim=1)


encoder, head = Encoder(), nn.Linear(40, 5)
compiled = torch.compile(encoder, backend="eager", dynamic=False)  # fault
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()])
lengths = torch.randperm(300, generator=torch.Generator().manual_seed(2)) + 20
t0 = time.perf_counter()
for step in range(args.steps):
    length = 320 if args.pad else int(lengths[step])
    x = torch.randn(8, length, 40)
    target = torch.randint(0, 5, (8,))
    loss = nn.functional.cross_entropy(head(compiled(x)), target)  # fault
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.5f}")
print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

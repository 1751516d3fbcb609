"""Character model; every batch is cut and encoded in Python by get_batch."""

import argparse
import random
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--iters", type=int, default=400)
parser.add_argument("--encoded", action="store_true", help="encode the text once")
args = parser.parse_args()

rnd = random.Random(0)
text = "".join(rnd.choice("abcdefghijklmnopqrstuvwxyz ,.;:!?") for _ in range(60_000))
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
encoded = torch.tensor([stoi[c] for c in text])


def get_batch(batch_size=160, block=128):  # fault
    starts = [rnd.randrange(len(text) - block - 1) for _ in range(batch_size)]
    if args.encoded:
        x = torch.stack([encoded[s : s + block] for s in starts])
        y = torch.stack([encoded[s + 1 : s + block + 1] for s in starts])
        return x, y
    x = torch.stack([torch.tensor([stoi[c] for c in text[s : s + block]]) for s in starts])
    y = torch.stack([torch.tensor([chars.index(c) for c in text[s + 1 : s + block + 1]]) for s in starts])
    return x, y


torch.manual_seed(0)
model = nn.Embedding(len(chars), len(chars))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
t0 = time.time()
for it in range(args.iters):
    xb, yb = get_batch()  # fault
    loss = F.cross_entropy(model(xb).view(-1, len(chars)), yb.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if it % 40 == 0:
        print(it, f"{loss.item():.5f}")
print(f"{args.iters} steps in {time.time() - t0:.2f} s", file=sys.stderr)

"""Streams a CSV through a plain generator, no DataLoader."""

import argparse
import csv
import io
import random
import sys
import time

import torch
from torch import nn


def make_csv(rows):
    rnd = random.Random(4)
    buf = io.StringIO()
    out = csv.writer(buf)
    for _ in range(rows):
        out.writerow([f"{rnd.gauss(0, 1):.6f}" for _ in range(60)] + [rnd.randint(0, 1)])
    return buf.getvalue()


def batches(text, size, epochs):  # fault
    for _ in range(epochs):
        xs, ys = [], []
        for row in csv.reader(io.StringIO(text)):
            xs.append([float(v) / (1.0 + abs(float(v))) for v in row[:-1]])
            ys.append(int(row[-1]))
            if len(xs) == size:
                yield torch.tensor(xs), torch.tensor(ys)
                xs, ys = [], []


def once(text, size, epochs):
    ready = list(batches(text, size, 1))
    for _ in range(epochs):
        yield from ready


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--cache", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
text = make_csv(12_800)
net = nn.Sequential(nn.Linear(60, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters())
stream = (once if args.cache else batches)(text, 512, args.epochs)
n, t0 = 0, time.perf_counter()
for x, y in stream:  # fault
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    n += 1
print(f"{n} batches, loss {loss.item():.5f}")
print(f"{n} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

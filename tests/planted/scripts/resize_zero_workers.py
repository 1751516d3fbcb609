"""Train a small classifier on photos that are filtered and resized when they are asked for."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, n, size=160):
        self.n = n
        self.size = size
        self.raw = np.random.RandomState(0).randint(0, 255, (16, 3, size, size)).astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        img = self.raw[i % len(self.raw)] / 255.0
        spectrum = np.fft.rfft2(img)
        spectrum[:, 40:-40] = 0
        img = np.fft.irfft2(spectrum, s=(self.size, self.size))
        img = img.reshape(3, 32, 5, 32, 5).mean(axis=(2, 4))
        img = (img - img.mean()) / (img.std() + 1e-6)
        return torch.from_numpy(img.astype(np.float32)), i % 10


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=0)
    args = p.parse_args()

    torch.manual_seed(0)
    data = Photos(2400)
    loader = DataLoader(data, batch_size=args.batch_size, num_workers=args.workers)  # fault
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 128), nn.ReLU(), nn.Linear(128, 10))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()

    steps, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for img, label in loader:
            opt.zero_grad()
            loss = loss_fn(model(img), label)
            loss.backward()
            opt.step()
            total += loss.item()
            steps += 1
        print(f"epoch {epoch} loss {total / len(loader):.6f}")
    print(f"{steps} steps in {time.perf_counter() - start:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

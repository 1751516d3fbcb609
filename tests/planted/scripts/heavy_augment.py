"""Segmentation toy with strong augmentation; one worker for each core, as recommended."""

import argparse
import os
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def elastic(img, rng, strength):
    for _ in range(strength):  # fault
        field = rng.standard_normal(img.shape).astype(np.float32)  # fault
        field = np.fft.irfft2(np.fft.rfft2(field) * 0.1, s=img.shape)  # fault
        img = img + 0.01 * np.sin(field) * img  # fault
    return img


class Slices(Dataset):
    def __init__(self, n, strength):
        self.n, self.strength = n, strength
        self.base = np.random.RandomState(1).rand(8, 128, 128).astype(np.float32)

    def __len__(self):
        return self.n

    def __getitem__(self, i):  # fault
        rng = np.random.default_rng(i)
        img = elastic(self.base[i % 8], rng, self.strength)
        mask = (img > 0.5).astype(np.float32)
        return torch.from_numpy(img[None, ::4, ::4].astype(np.float32)), torch.from_numpy(mask[None, ::4, ::4].copy())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(1, 4, 3, padding=1)
        self.b = nn.Conv2d(4, 1, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def train(args):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    cores = len(os.sched_getaffinity(0))
    loader = DataLoader(
        Slices(args.steps * 4, args.strength),
        batch_size=4,
        num_workers=cores,
        persistent_workers=True,
        prefetch_factor=4,
    )
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    started = time.perf_counter()
    for i, (img, mask) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(net(img), mask)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 50 == 0:
            print(i, f"{loss.item():.6f}")
    print(f"{i + 1} steps in {time.perf_counter() - started:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--strength", type=int, default=10)
    train(p.parse_args())

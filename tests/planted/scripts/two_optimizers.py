"""GAN on small images: discriminator and generator take turns in every iteration."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--n_cpu", type=int, default=0)
parser.add_argument("--batches", type=int, default=200)
opt = parser.parse_args()


class Sketches(Dataset):
    def __len__(self):
        return opt.batches * 16

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        yy, xx = np.mgrid[0:64, 0:64].astype(np.float32)
        img = np.zeros((64, 64), dtype=np.float32)
        for cx, cy, r in rng.uniform(4, 60, size=(48, 3)):
            img += np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (r + 4))
        img = img.reshape(16, 4, 16, 4).mean(axis=(1, 3))
        return torch.from_numpy(img / img.max() * 2 - 1)


torch.manual_seed(0)
torch.set_num_threads(1)
G = nn.Sequential(nn.Linear(32, 128), nn.LeakyReLU(0.2), nn.Linear(128, 256), nn.Tanh())
D = nn.Sequential(nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
dataloader = DataLoader(Sketches(), batch_size=16, num_workers=opt.n_cpu)  # fault
optimizer_G = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()

start = time.time()
for i, imgs in enumerate(dataloader):
    real = imgs.flatten(1)
    ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
    z = torch.randn(len(real), 32)
    fake = G(z)
    optimizer_D.zero_grad()
    d_loss = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    d_loss.backward()
    optimizer_D.step()
    optimizer_G.zero_grad()
    g_loss = bce(D(fake), ones)
    g_loss.backward()
    optimizer_G.step()
    if i % 50 == 0:
        print(f"[Batch {i}/{len(dataloader)}] [D {d_loss.item():.5f}] [G {g_loss.item():.5f}]")
print(f"{i + 1} steps in {time.time() - start:.2f} s", file=sys.stderr)

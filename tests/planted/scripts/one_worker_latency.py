# Pull samples by index from the feature service; each answer takes a few milliseconds to arrive.
import argparse
import socket
import struct
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ap = argparse.ArgumentParser()
ap.add_argument("--store", required=True)
ap.add_argument("--workers", type=int, default=1)
ap.add_argument("--steps", type=int, default=150)
a = ap.parse_args()


class Features(Dataset):
    sock = None

    def __len__(self):
        return a.steps * 8

    def __getitem__(self, i):  # fault U8 T8
        if self.sock is None:
            host, port = a.store.split(":")
            self.sock = socket.create_connection((host, int(port)))
        self.sock.sendall(struct.pack("!II", i, 2048))
        got = b""
        while len(got) < 2048:
            got += self.sock.recv(2048)
        return np.frombuffer(got, dtype=np.uint8).astype(np.float32) / 255.0, np.int64(got[1] % 3)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 3))
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
loader = DataLoader(Features(), batch_size=8, num_workers=a.workers)  # fault
t0 = time.perf_counter()
running = 0.0
for k, (feat, lab) in enumerate(loader, 1):
    loss = nn.functional.cross_entropy(model(feat), lab)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    running += loss.item()
print("mean loss %.5f" % (running / k))
print(f"{k} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

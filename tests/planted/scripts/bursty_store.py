"""Most objects are in the cache of the store, a few are cold and take long to come."""

import argparse
import socket
import struct
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Objects(Dataset):
    def __init__(self, store, n):
        self.store = store
        self.n = n
        self._c = None

    def __len__(self):
        return self.n

    def __getitem__(self, k):
        if self._c is None:
            h, p = self.store.split(":")
            self._c = socket.create_connection((h, int(p)))
        self._c.sendall(struct.pack("!II", k, 1024))
        b = bytearray()
        while len(b) < 1024:
            b.extend(self._c.recv(1024 - len(b)))
        return torch.frombuffer(b, dtype=torch.uint8).float(), b[3] % 2


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--store", required=True)
    p.add_argument("--prefetch", type=int, default=2)
    p.add_argument("--steps", type=int, default=210)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(  # fault
        Objects(args.store, args.steps * 4), batch_size=4, num_workers=4, prefetch_factor=args.prefetch
    )
    net = nn.Sequential(nn.Linear(1024, 640), nn.ReLU(), nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 2))
    opt = torch.optim.SGD(net.parameters(), lr=1e-4)
    tic = time.perf_counter()
    for i, (x, y) in enumerate(loader):
        for _ in range(3):  # three augmented views of the same objects
            loss = nn.functional.cross_entropy(net(x + 0.1 * torch.randn_like(x)), y)
            loss.backward()
        opt.step()
        opt.zero_grad()
        if i % 70 == 0:
            print(f"{i:5d} {loss.item():.4f}")
    print(f"{i + 1} steps in {time.perf_counter() - tic:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

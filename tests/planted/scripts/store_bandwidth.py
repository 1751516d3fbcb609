"""Images come from the bucket mount of the lab; four workers read ahead."""

import argparse
import socket
import struct
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_exactly(sock, n):  # fault
    parts = []
    while n:
        part = sock.recv(min(n, 65536))
        parts.append(part)
        n -= len(part)
    return b"".join(parts)


class Bucket(Dataset):
    def __init__(self, address, n, side=96):
        self.address, self.n, self.side, self.sock = address, n, side, None

    def __len__(self):
        return self.n

    def __getitem__(self, i):  # fault
        if self.sock is None:
            host, port = self.address.split(":")
            self.sock = socket.create_connection((host, int(port)))
        size = 3 * self.side * self.side
        self.sock.sendall(struct.pack("!II", i, size))
        raw = bytearray(read_exactly(self.sock, size))
        img = torch.frombuffer(raw, dtype=torch.uint8).reshape(3, self.side, self.side)
        return img.float().div_(255), raw[7] % 10


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, metavar="HOST:PORT")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=120)
    opts = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Bucket(opts.store, opts.steps * 8), batch_size=8, num_workers=opts.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10)
    )
    optimizer = torch.optim.Adam(model.parameters())
    t0 = time.perf_counter()
    for step, (images, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            print(f"step {step + 1:4d}  loss {loss.item():.4f}", flush=True)
    print(f"{step + 1} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

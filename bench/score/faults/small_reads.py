"""Thumbnails of 8 kB, each one a request to a store that answers after a few milliseconds."""

import argparse
import os
import socket
import struct
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--store", required=True)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--together", type=int, default=1, help="samples a request")
args = parser.parse_args()
SIZE = 8192


class Thumbnails(Dataset):
    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.address, self.conn, self.kept = (host, int(port)), None, b""

    def __len__(self):
        return args.steps * 16

    def __getitem__(self, i):
        if self.conn is None:
            self.conn = socket.create_connection(self.address)
        while len(self.kept) < SIZE:
            want = SIZE * args.together
            self.conn.sendall(struct.pack("!II", i, want))
            got = b""
            while len(got) < want:
                got += os.read(self.conn.fileno(), want - len(got))
            self.kept += got
        data, self.kept = self.kept[:SIZE], self.kept[SIZE:]
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).float() / 255, i % 4


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Thumbnails(args.store), batch_size=16, num_workers=2, persistent_workers=True)
net = torch.nn.Linear(SIZE, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
began = time.perf_counter()
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{args.steps} steps in {time.perf_counter() - began:.2f} s", file=sys.stderr)

"""Samples are read one by one from a remote store, in the training process."""

import argparse
import socket
import struct
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class RemoteSamples(Dataset):
    def __init__(self, address, n):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.n = n
        self.conn = None

    def __len__(self):
        return self.n

    def __getitem__(self, index):  # fault U8 T8
        if self.conn is None:
            self.conn = socket.create_connection(self.address)
        self.conn.sendall(struct.pack("!II", index, 4096))
        data = bytearray()
        while len(data) < 4096:
            data += self.conn.recv(4096 - len(data))
        x = torch.frombuffer(data, dtype=torch.uint8).float() / 255
        return x, int(data[0]) % 5


parser = argparse.ArgumentParser()
parser.add_argument("--store", required=True)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(1)
train = DataLoader(
    RemoteSamples(args.store, args.samples), batch_size=args.batch_size, num_workers=args.workers
)  # fault

w1 = torch.nn.Linear(4096, 256)
w2 = torch.nn.Linear(256, 5)
optimizer = torch.optim.SGD([*w1.parameters(), *w2.parameters()], lr=0.01)

began = time.time()
for step, (x, y) in enumerate(train):
    out = w2(torch.relu(w1(x)))
    loss = F.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print("step", step, "loss", round(float(loss), 4))
print(f"{step + 1} steps in {time.time() - began:.2f} s", file=sys.stderr)

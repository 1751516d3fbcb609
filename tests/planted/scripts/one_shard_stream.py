"""Streams shards; there is one shard, and four workers."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, shards, per_shard):
        self.shards = shards
        self.per_shard = per_shard

    def decode(self, seed):  # fault U8 T8
        rng = np.random.default_rng(seed)
        blob = rng.integers(0, 255, 60_000, dtype=np.uint8)
        time.sleep(0.0025)  # the answer of the object store
        return torch.from_numpy(blob[::120].astype(np.float32) / 255), seed % 5

    def __iter__(self):  # fault
        info = get_worker_info()
        mine = self.shards[info.id :: info.num_workers] if info else self.shards
        for shard in mine:
            for k in range(self.per_shard):
                yield self.decode(shard * 100_000 + k)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=1)
    ap.add_argument("--samples", type=int, default=1920)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    stream = Shards(list(range(args.shards)), args.samples // args.shards)
    loader = DataLoader(stream, batch_size=12, num_workers=4)  # fault
    model = nn.Sequential(nn.Linear(500, 128), nn.ReLU(), nn.Linear(128, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    steps, t0 = 0, time.perf_counter()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        steps += 1
        if steps % 40 == 0:
            print(f"{steps}: {loss.item():.5f}")
    print(f"{steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

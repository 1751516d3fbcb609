"""Training waits: each sample sleeps, as a read from a slow share does."""

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Slow(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(0.01)  # the read
        return torch.ones(8)


if __name__ == "__main__":
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(Slow(), batch_size=8, num_workers=int(sys.argv[1]))):
        if step == 4:
            print("ready", flush=True)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

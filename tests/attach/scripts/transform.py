"""Training waits: each sample costs CPU time in Python."""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def augment(index):
    return sum(number * index % 7 for number in range(60_000))  # the transform


class Costly(Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return torch.full((8,), float(augment(index)))


if __name__ == "__main__":
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, batch in enumerate(DataLoader(Costly(), batch_size=8, num_workers=int(sys.argv[1]))):
        if step == 4:
            print("ready", flush=True)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()

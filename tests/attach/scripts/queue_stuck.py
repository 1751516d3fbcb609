"""A loader whose workers wait for something that never comes."""

import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Stuck(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        threading.Event().wait()  # never set
        return torch.ones(1)


if __name__ == "__main__":
    print("ready", flush=True)
    for batch in DataLoader(Stuck(), batch_size=4, num_workers=2):
        pass

"""Tabular regression; rows are looked up in a DataFrame."""

import argparse
import sys
import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, df):
        self.df = df
        self.features = [c for c in df.columns if c != "price"]

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):  # fault
        row = self.df.iloc[idx]
        x = row[self.features].to_numpy(dtype=np.float32)
        return torch.from_numpy(x), torch.tensor(row["price"], dtype=torch.float32)


class Arrays(Dataset):
    def __init__(self, df):
        self.x = df.drop(columns="price").to_numpy(dtype=np.float32)
        self.y = df["price"].to_numpy(dtype=np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        return torch.from_numpy(self.x[idx]), torch.tensor(self.y[idx])


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=16000)
    ap.add_argument("--arrays", action="store_true", help="look rows up in NumPy arrays instead")
    args = ap.parse_args()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(args.rows, 24)), columns=[f"f{k}" for k in range(24)])
    frame["price"] = frame.sum(axis=1)
    dataset = Arrays(frame) if args.arrays else Table(frame)
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=64, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Linear(24, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    steps, t0 = 0, time.perf_counter()
    for _ in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        print(f"mse {loss.item():.5f}")
    print(f"{steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

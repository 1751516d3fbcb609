"""Prints losses and weights to the last bit: `python losses.py mlp|workers|dropout`."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def model_and_data(kind: str) -> tuple[nn.Module, TensorDataset]:
    data = TensorDataset(torch.randn(1200, 48), torch.randint(0, 6, (1200,)))
    layers: list[nn.Module] = [nn.Linear(48, 96), nn.ReLU()]
    if kind == "dropout":
        layers += [nn.Dropout(0.3), nn.BatchNorm1d(96)]
    return nn.Sequential(*layers, nn.Linear(96, 6)), data


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["mlp", "workers", "dropout"])
    kind = parser.parse_args().kind
    torch.manual_seed(11)
    torch.set_num_threads(1)
    model, data = model_and_data(kind)
    loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=2 if kind == "workers" else 0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x + 0.01 * torch.randn_like(x)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
    for p in model.parameters():
        print(p.detach().double().sum().item().hex(), p.detach().double().norm().item().hex())


if __name__ == "__main__":
    main()

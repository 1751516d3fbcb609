"""Keeps an exponential moving average of the weights in double precision."""

import argparse
import sys
import time

import torch
from torch import nn


class Ema:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = {k: v.detach().double().numpy().copy() for k, v in model.state_dict().items()}

    def update(self, model):  # fault
        for k, v in model.state_dict().items():
            self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * v.detach().double().numpy()


class Ranker(nn.Module):
    def __init__(self, items, dim):
        super().__init__()
        self.items = nn.EmbeddingBag(items, dim, sparse=True)
        self.score = nn.Linear(dim, 1)

    def forward(self, basket):
        return self.score(self.items(basket)).squeeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--no-ema", action="store_true")
    args = p.parse_args()
    torch.manual_seed(0)
    model = Ranker(40000, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ema = None if args.no_ema else Ema(model)
    gen = torch.Generator().manual_seed(1)
    clock = time.perf_counter()
    for it in range(args.steps):
        basket = torch.randint(0, 40000, (256, 12), generator=gen)
        bought = torch.rand(256, generator=gen)
        loss = nn.functional.binary_cross_entropy_with_logits(model(basket), bought)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if ema is not None:
            ema.update(model)  # fault
        if it % 50 == 0:
            print(f"it {it} loss {loss.item():.5f}")
    print(f"{args.steps} steps in {time.perf_counter() - clock:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

"""A small training loop that tests watch, and everything in torch that an agent may touch."""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, dataloader
from torch.utils.data._utils import fetch


class Slow(Dataset[torch.Tensor]):
    """Samples that wait for something before they come; those of a fast one do not."""

    def __init__(self, samples: int, wait_s: float = 0.006) -> None:
        self.samples, self.wait_s = samples, wait_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.wait_s:
            time.sleep(self.wait_s)
        return torch.full((8,), float(index % 7))


class Loop:
    """A model, an optimizer and a loader that exist before anything is watched."""

    def __init__(self, steps: int, *, wait_s: float = 0.006, workers: int = 0, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(8, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.loader = DataLoader(Slow(steps * 4, wait_s), batch_size=4, num_workers=workers, **options)
        self.losses: list[float] = []

    def train(self) -> None:
        for batch in self.loader:
            self.optimizer.zero_grad()
            loss = self.model(batch).square().mean()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())


torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # torch itself wraps `step` where a class is used first


def touched() -> dict[str, object]:
    """Return what an agent may put wrappers around, each as it is now."""
    found: dict[str, object] = {}
    owners = [
        torch.Tensor,
        torch.autograd,
        torch.autograd.set_detect_anomaly,
        torch.autograd.detect_anomaly,
        torch.autograd.profiler.profile,
        torch.cuda,
        torch.cuda.Stream,
        torch.cuda.Event,
        torch.nn.parallel.DistributedDataParallel,
        torch.distributed.distributed_c10d,
        torch.optim.Optimizer,
        torch.optim.Adam,
        DataLoader,
        dataloader._BaseDataLoaderIter,
        dataloader._MultiProcessingDataLoaderIter,
        fetch._MapDatasetFetcher,
        fetch._IterableDatasetFetcher,
    ]
    for owner in owners:
        for name, value in vars(owner).items():
            if callable(value) or isinstance(value, staticmethod | classmethod):
                found[f"{owner.__name__}.{name}"] = value
    for number, callback in enumerate(gc.callbacks):
        found[f"gc.{number}"] = callback
    from torch.optim import optimizer

    for hooks in (optimizer._global_optimizer_pre_hooks, optimizer._global_optimizer_post_hooks):
        for key, hook in hooks.items():
            found[f"hook.{key}.{id(hooks)}"] = hook
    return found


def changed(before: dict[str, object]) -> list[str]:
    """Return the names of what is no longer the same object, has come or has gone."""
    after = touched()
    return sorted(name for name in {*before, *after} if before.get(name) is not after.get(name))

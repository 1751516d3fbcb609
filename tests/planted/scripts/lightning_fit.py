"""A LightningModule that waits for its data."""

import argparse
import logging
import sys
import time
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Signals(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        s = rng.standard_normal(72_000)
        s = np.convolve(np.sort(s), np.hanning(33), mode="same")
        return torch.from_numpy(s[::288].astype(np.float32)), i % 4


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(250, 64), nn.ReLU(), nn.Linear(64, 4))
        self.last = None

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.last = loss.detach()
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=160)
    args = parser.parse_args()
    L.seed_everything(0, verbose=False)
    torch.set_num_threads(1)
    loader = DataLoader(Signals(args.steps * 8), batch_size=8, num_workers=args.workers)  # fault
    model = Classifier()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    t0 = time.perf_counter()
    trainer.fit(model, loader)
    print(f"loss {model.last.item():.5f}")
    print(f"{trainer.global_step} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

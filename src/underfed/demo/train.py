"""A small image classifier that is starved for input: an ordinary script, CPU only. Try `--workers 4`."""
# ruff: noqa: T201 - a training script prints its losses

import argparse
import time
import zlib

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 32
CLASSES = 4


class RemoteImages(Dataset[tuple[torch.Tensor, int]]):
    """Compressed images behind a store that takes its time to answer, augmented one by one."""

    def __init__(self, count: int, answer_ms: float) -> None:
        self.answer_s = answer_ms / 1e3
        rng = np.random.default_rng(0)
        patterns = rng.integers(0, 200, (CLASSES, SIDE + 8, SIDE + 8, 3))
        self.labels = rng.integers(0, CLASSES, count)
        self.blobs = [
            zlib.compress((patterns[label] + rng.integers(0, 56, patterns[label].shape)).astype(np.uint8).tobytes())
            for label in self.labels
        ]

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.answer_s)  # the store's answer
        stored = np.frombuffer(zlib.decompress(self.blobs[index]), np.uint8).reshape(SIDE + 8, SIDE + 8, 3)
        rng = np.random.default_rng(index)  # by sample: the same numbers whoever loads it
        top, left = rng.integers(0, 9, 2)
        image = stored[top : top + SIDE, left : left + SIDE].astype(np.float32)
        if rng.random() < 0.5:
            image = image[:, ::-1]
        noisy = image * rng.uniform(0.8, 1.2) + rng.normal(0, 8, image.shape)
        scaled = (noisy - noisy.mean()) / (noisy.std() + 1e-6)
        return torch.from_numpy(scaled.astype(np.float32).transpose(2, 0, 1).copy()), int(self.labels[index])


def main() -> None:
    """Train for one epoch and say how long a step takes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--answer-ms", type=float, default=3.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)  # a model this small gains nothing from a second one
    dataset = RemoteImages(args.steps * args.batch, args.answer_ms)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 16, CLASSES),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    settled = min(30, args.steps // 2)  # timing starts after these steps
    for step, (images, labels) in enumerate(loader, 1):
        loss = loss_of(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == settled:
            start = time.perf_counter()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    ms = 1e3 * (time.perf_counter() - start) / (step - settled)
    print(f"done: {step} steps, {ms:.2f} ms a step after the first {settled}, loss {loss.item():.9g}", flush=True)


if __name__ == "__main__":
    main()

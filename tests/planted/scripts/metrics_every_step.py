"""Tracks AUC and calibration of the training batches."""

import argparse
import sys
import time

import numpy as np
import torch
from torch import nn


def auc(scores, labels):  # fault
    wins = 0.0
    positives, negatives = scores[labels == 1], scores[labels == 0]
    for s in positives:
        wins += (s > negatives).sum() + 0.5 * (s == negatives).sum()
    return wins / max(1, len(positives) * len(negatives))


def calibration(scores, labels, bins=20):  # fault
    error = 0.0
    order = np.argsort(scores)
    for chunk in np.array_split(order, bins):
        error += abs(scores[chunk].mean() - labels[chunk].mean()) * len(chunk) / len(scores)
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--metrics-every", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(2048, 40)
    y = (x[:, 0] + 0.5 * torch.randn(2048) > 0).float()
    seen = []
    t0 = time.perf_counter()
    for step in range(args.steps):
        logits = model(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % args.metrics_every == 0:
            scores = torch.sigmoid(logits.detach()).numpy()
            labels = y.numpy()
            seen.append((auc(scores, labels), calibration(scores, labels)))  # fault
    print("auc {:.4f} ece {:.4f}".format(*seen[-1]))
    print(f"{args.steps} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

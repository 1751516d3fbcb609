"""Recurrent cell written out by hand: thousands of very small operations a step."""

import argparse
import sys
import time

import torch
from torch import nn


class HandCell(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.n_hid = n_hid
        self.wi = nn.Parameter(torch.randn(n_in, 4 * n_hid) * 0.1)
        self.wh = nn.Parameter(torch.randn(n_hid, 4 * n_hid) * 0.1)
        self.b = nn.Parameter(torch.zeros(4 * n_hid))

    def forward(self, x):  # fault
        h = x.new_zeros(x.shape[0], self.n_hid)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            i, f, g, o = (x[:, t] @ self.wi + h @ self.wh + self.b).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


class Library(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.rnn = nn.LSTM(n_in, n_hid, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0][:, -1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--cell", choices=["hand", "library"], default="hand")
    ap.add_argument("--steps", type=int, default=150)
    args = ap.parse_args()
    torch.manual_seed(0)
    body = HandCell(8, 8) if args.cell == "hand" else Library(8, 8)
    head = nn.Linear(8, 1)
    opt = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
    x, y = torch.randn(8, 100, 8), torch.randn(8, 1)
    tic = time.perf_counter()
    for step in range(args.steps):
        opt.zero_grad()
        loss = nn.functional.mse_loss(head(body(x)), y)  # fault
        loss.backward()  # fault
        opt.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.5f}")
    print(f"{args.steps} steps in {time.perf_counter() - tic:.2f} s", file=sys.stderr)

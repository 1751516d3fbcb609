"""A small GPT on random bytes; batches are cut from a memory map, as in nanoGPT."""

import argparse
import math
import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocab, block_size, c=192, layers=3):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, c), nn.Embedding(block_size, c)
        self.blocks = nn.ModuleList(Block(c, 4) for _ in range(layers))
        self.head = nn.Linear(c, vocab)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for b in self.blocks:
            x = b(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def get_batch(path, batch_size, block_size):
    data = np.memmap(path, dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i : i + block_size].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + block_size].astype(np.int64)) for i in ix])
    return x, y


def get_lr(it, warmup, total, top):
    if it < warmup:
        return top * (it + 1) / warmup
    return top * 0.5 * (1 + math.cos(math.pi * (it - warmup) / (total - warmup)))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--max_iters", type=int, default=120)
    ap.add_argument("--batch_size", type=int, default=4)
    ap.add_argument("--block_size", type=int, default=128)
    cfg = ap.parse_args()
    torch.manual_seed(1337)
    with tempfile.TemporaryDirectory() as folder:
        train_bin = os.path.join(folder, "train.bin")
        np.random.RandomState(0).randint(0, 256, 200_000).astype(np.uint16).tofile(train_bin)
        model = GPT(256, cfg.block_size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
        X, Y = get_batch(train_bin, cfg.batch_size, cfg.block_size)
        t0 = time.perf_counter()
        for it in range(cfg.max_iters):
            for group in optimizer.param_groups:
                group["lr"] = get_lr(it, 10, cfg.max_iters, 1e-3)
            loss = model(X, Y)
            X, Y = get_batch(train_bin, cfg.batch_size, cfg.block_size)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if it % 20 == 0:
                print(f"iter {it}: loss {loss.item():.4f}")
        print(f"{cfg.max_iters} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)

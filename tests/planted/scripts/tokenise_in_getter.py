"""Language model on raw text; each sample is tokenised when it is asked for."""

import argparse
import random
import sys
import time
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards quietly mix potions under stone".split()


def learn_merges(corpus, k):
    counts = {}
    for line in corpus:
        for a, b in pairwise(line):
            counts[a + b] = counts.get(a + b, 0) + 1
    best = sorted(counts, key=lambda pair: (-counts[pair], pair))[:k]
    return {pair: rank for rank, pair in enumerate(best)}


class Tokenizer:
    def __init__(self, corpus):
        self.merges = learn_merges(corpus, 60)
        symbols = sorted({c for line in corpus for c in line} | set(self.merges))
        self.ids = {s: i for i, s in enumerate(symbols)}

    def encode(self, text):  # fault
        parts = list(text)
        while True:
            ranked = [(self.merges.get(a + b, 1000), i) for i, (a, b) in enumerate(pairwise(parts))]
            rank, at = min(ranked)
            if rank == 1000:
                return [self.ids[p] for p in parts]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]


class Text(Dataset):
    def __init__(self, lines, tok, length, pretokenised):
        self.lines, self.tok, self.length = lines, tok, length
        self.cache = [tok.encode(t) for t in lines[:64]] if pretokenised else None

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):  # fault
        ids = self.cache[i % 64] if self.cache else self.tok.encode(self.lines[i])
        ids = (ids * 8)[: self.length + 1]
        return torch.tensor(ids[:-1]), torch.tensor(ids[1:])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--pretokenised", action="store_true")
    p.add_argument("--steps", type=int, default=160)
    args = p.parse_args()
    rnd = random.Random(0)
    lines = [" ".join(rnd.choice(WORDS) for _ in range(40)) for _ in range(args.steps * 8)]
    tok = Tokenizer(lines[:200])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Text(lines, tok, 64, args.pretokenised), batch_size=8, num_workers=2)
    emb, mix, out = nn.Embedding(len(tok.ids), 32), nn.Conv1d(32, 32, 3), nn.Linear(32, len(tok.ids))
    params = [*emb.parameters(), *mix.parameters(), *out.parameters()]
    opt = torch.optim.AdamW(params, lr=3e-3)
    t0 = time.perf_counter()
    for step, (x, y) in enumerate(loader):
        h = torch.relu(mix(nn.functional.pad(emb(x).mT, (2, 0)))).mT
        loss = nn.functional.cross_entropy(out(h).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.5f}")
    print(f"{step + 1} steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

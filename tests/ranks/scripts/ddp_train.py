"""DDP over gloo on CPUs. What is planted is chosen by options; with `--link` gradients also cross a slow network."""

import argparse
import contextlib
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=60)
p.add_argument("--model", choices=("table", "wide", "deep"), default="deep")
p.add_argument("--batch", type=int, default=96)
p.add_argument("--cap", type=float, default=25)
p.add_argument("--link", type=float, default=0, help="MB/s of a network between the ranks")
p.add_argument("--half", action="store_true", help="send half as many bits")
p.add_argument("--find-unused", action="store_true")
p.add_argument("--accum", type=int, default=1)
p.add_argument("--no-sync", action="store_true")
p.add_argument("--item", action="store_true")
p.add_argument("--slow-ms", type=float, default=0, help="what the storage of rank 1 takes for one sample")
p.add_argument("--uneven", action="store_true", help="batches of different lengths on the ranks")
args = p.parse_args()


class Wire:
    """A network that carries one bucket after the other at a known rate, and takes no CPU time."""

    def __init__(self, mb_s):
        self.rate = mb_s * 1e6
        self.waiting = queue.SimpleQueue()
        threading.Thread(target=self.carry, daemon=True).start()

    def carry(self):
        free = 0.0
        while True:
            work, buffer, kept, size, done = self.waiting.get()
            begin = time.perf_counter()
            work.wait()
            # The slowest rank's bucket is there now; from then on the wire is taken.
            free = max(free, begin) + size / self.rate
            time.sleep(max(0.0, free - time.perf_counter()))
            done.set_result(buffer.copy_(kept).div_(dist.get_world_size()) if kept is not buffer else buffer)

    def hook(self, state, bucket):
        buffer = bucket.buffer()
        kept = buffer.half() if args.half else buffer
        if kept is buffer:
            buffer.div_(dist.get_world_size())
        work, done = dist.all_reduce(kept, async_op=True), torch.futures.Future()
        self.waiting.put((work, buffer, kept, kept.numel() * kept.element_size(), done))
        return done


class Samples(Dataset):
    """Samples that come from a storage; that of rank 1 can be slow."""

    def __len__(self):
        return args.steps * args.accum * args.batch

    def __getitem__(self, i):
        if args.slow_ms and dist.get_rank() == 1:
            time.sleep(args.slow_ms / 1e3)  # the slow storage
        return i


def model():
    if args.model == "table":  # nearly all parameters in the layer whose gradient comes last
        return nn.Sequential(nn.EmbeddingBag(12000, 128), nn.Linear(128, 8))
    if args.model == "wide":
        return nn.Sequential(nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 8))
    layers = [part for _ in range(6) for part in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 8))


def batch(step, rank, ids, generator):
    rows = len(ids)
    if args.uneven:
        rows = rows * (7 if (step + rank) % 2 else 1) // 4
    if args.model == "table":
        return torch.randint(0, 12000, (rows, 8), generator=generator)
    return torch.randn(rows, 512 if args.model == "wide" else 256, generator=generator)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Samples(), batch_size=args.batch)
    ddp = DistributedDataParallel(
        model(), bucket_cap_mb=args.cap, find_unused_parameters=args.find_unused, gradient_as_bucket_view=True
    )
    if args.link:
        ddp.register_comm_hook(None, Wire(args.link).hook)
    elif args.half:
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    total, begin = 0.0, time.perf_counter()
    for micro, ids in enumerate(loader):
        x = batch(micro, rank, ids, generator)
        y = torch.randint(0, 8, (len(x),), generator=generator)
        last = micro % args.accum == args.accum - 1
        with ddp.no_sync() if args.no_sync and not last else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(ddp(x), y) / args.accum
            loss.backward()
        if args.item:
            total += loss.item()
        if last:
            opt.step()
            opt.zero_grad()
    if rank == 0:
        print(f"{args.steps} steps in {time.perf_counter() - begin:.2f} s", file=sys.stderr)
    dist.barrier()  # the store lives in rank 0: nobody leaves early
    dist.destroy_process_group()


main()

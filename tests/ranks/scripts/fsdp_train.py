"""Parameters sharded over gloo ranks on CPUs (`fully_shard`, or the older wrapper with `--wrapper`)."""

import argparse
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=60)
p.add_argument("--batch", type=int, default=64)
p.add_argument("--width", type=int, default=512)
p.add_argument("--wrapper", action="store_true")
args = p.parse_args()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = args.width
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(4)], nn.Linear(width, 8))
    if args.wrapper:
        from torch.distributed.fsdp import FullyShardedDataParallel

        model = FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    else:
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(args.batch, width, generator=torch.Generator().manual_seed(dist.get_rank()))
    y = torch.zeros(args.batch, dtype=torch.long)
    begin = time.perf_counter()
    for _ in range(args.steps):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if dist.get_rank() == 0:
        print(f"{args.steps} steps in {time.perf_counter() - begin:.2f} s", file=sys.stderr)
    dist.barrier()  # the store lives in rank 0: nobody leaves early
    dist.destroy_process_group()


main()

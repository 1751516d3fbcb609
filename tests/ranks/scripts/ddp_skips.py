"""DDP over gloo; in its fifth step rank 1 leaves out the backward pass, goes elsewhere and never comes back."""

import threading

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(64, 64))
batch = torch.randn(8, 64)
for step in range(6):
    if step == 4:
        print("ready", flush=True)
        if rank == 1:
            threading.Event().wait()  # never set
    model(batch).square().mean().backward()

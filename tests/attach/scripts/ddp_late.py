"""Two ranks under DDP; rank 1 sleeps before its forward pass, and rank 0 waits inside its backward pass."""

import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(8, 64)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    if rank == 1:
        time.sleep(0.2)  # the late one
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()

"""Two ranks; rank 1 sleeps before each collective, and rank 0 waits for it there."""

import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(1000)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    if rank == 1:
        time.sleep(0.2)  # the late one
    dist.all_reduce(value)
    value = value / 2

"""Two ranks; rank 1 leaves out a collective and waits for something else for ever."""

import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
value = torch.ones(10)
dist.all_reduce(value)
print("ready", flush=True)
if rank == 1:
    threading.Event().wait()  # never set
dist.all_reduce(value)

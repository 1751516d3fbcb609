"""A lock is taken twice by the same thread."""

import threading

import torch

model = torch.nn.Linear(8, 8)
lock = threading.Lock()


def save():
    with lock:  # held already
        pass


print("ready", flush=True)
with lock:
    save()

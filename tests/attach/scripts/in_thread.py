"""The training runs in a thread; the main one only waits for it."""

import threading
import time

import torch

torch.set_num_threads(1)


def fetch_batch():
    time.sleep(0.02)  # the read
    return torch.randn(8, 64)


def train():
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    step = 0
    while True:
        step += 1
        if step == 4:
            print("ready", flush=True)
        batch = fetch_batch()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


thread = threading.Thread(target=train, name="trainer")
thread.start()
thread.join()

"""A log call between the steps writes to a place that takes its time."""

import logging
import time

import torch


class Remote(logging.Handler):
    def emit(self, record):
        time.sleep(0.02)  # a server far away


torch.set_num_threads(1)
log = logging.getLogger("train")
log.addHandler(Remote())
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(8, 64)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    log.warning("loss %s", loss)

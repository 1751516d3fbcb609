"""Many more threads than CPUs, each wanting one."""

import torch

torch.set_num_threads(32)
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
batch = torch.randn(512, 512)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()

"""Computing fills the step: a large layer on one thread, data from memory."""

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024))
optimizer = torch.optim.SGD(model.parameters(), 0.001)
batch = torch.randn(256, 1024)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()

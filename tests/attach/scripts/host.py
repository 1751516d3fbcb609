"""Python work between the steps holds up the training thread."""

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(8, 64)


def metrics(values):
    return sorted(values, key=lambda value: (value * 31) % 17)[:3]  # the metrics


step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    best = metrics(list(range(20_000)))

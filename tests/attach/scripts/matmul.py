"""Computing fills the step, at a line of the user's own: no frame of torch is ever on the stack."""

import torch

torch.set_num_threads(1)
left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
step = 0
while True:
    step += 1
    if step == 4:
        print("ready", flush=True)
    product = left.mm(right)
    left = product.sign_()

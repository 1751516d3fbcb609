"""Uses faulthandler, signal handlers and atexit, and says which of them are its own."""

import atexit
import faulthandler
import os
import signal
import sys
import time

import torch
from torch import nn

print("at start", signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGTERM))
print("faulthandler", faulthandler.is_enabled())
taken = [s.name for s in signal.valid_signals() if isinstance(s, signal.Signals) and callable(signal.getsignal(s))]
print("taken", sorted(taken))

got = []
signal.signal(signal.SIGUSR1, lambda n, f: got.append(("usr1", n)))
signal.signal(signal.SIGTERM, lambda n, f: got.append(("term", n)))
faulthandler.enable()
atexit.register(lambda: print("first registered, last run"))
atexit.register(print, "last registered, first run")

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 1))
opt = torch.optim.Adam(net.parameters())
x, y = torch.randn(256, 128), torch.randn(256, 1)
t0 = time.perf_counter()
for step in range(300):
    opt.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    loss.backward()
    opt.step()
    if step == 100:
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == 200:
        os.kill(os.getpid(), signal.SIGTERM)
print(f"300 steps in {time.perf_counter() - t0:.2f} s", file=sys.stderr)
print("signals", [(name, int(n)) for name, n in got], "enabled", faulthandler.is_enabled())
print("hooks", sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile())

"""What only looks like a mistake draws no alarm of any rule, not even one that is barely possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.audit.engine import audit

HEAD = """\
import os
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __getitem__(self, i):
        return self.read(i)


device = torch.device("cuda")
loader = DataLoader(Images(), num_workers=8, pin_memory=True, persistent_workers=True)
"""
LOOP = """\
for epoch in range(10):
    for step, (x, y) in enumerate(loader):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""

LOOKS_LIKE = {
    "the loop itself": "",
    "a value that is read every n steps": "        if step % 50 == 0:\n            print(step, loss.item())\n",
    "a value that is read every n steps, by a flag": (
        "        log_now = step % 50 == 0\n        if log_now:\n            print(step, loss.item())\n"
    ),
    "a step that goes on early": "        if step % 50:\n            continue\n        print(loss.item())\n",
    "a value that is read once an epoch": "    print(epoch, loss.item())\n",
    "a checkpoint once an epoch": "    torch.save(model.state_dict(), f'{epoch}.pt')\n",
    "a checkpoint of the best": "    if score > best:\n        torch.save(model.state_dict(), 'best.pt')\n",
    "validation once an epoch": (
        "    model.eval()\n    with torch.inference_mode():\n        for x, y in val_loader:\n"
        "            right += (model(x.to(device, non_blocking=True)).argmax(1).cpu() == y).sum().item()\n"
        "    model.train()\n"
    ),
    "evaluation in a function": (
        "\n\n@torch.no_grad()\ndef evaluate(model):\n    model.eval()\n    for x, y in val_loader:\n"
        "        total += criterion(model(x.cuda()), y.cuda()).item()\n        print(total)\n    return total\n"
    ),
    "running totals that stay on the device": "        total += loss.detach()\n    print(total.item() / step)\n",
    "an empty cache between epochs": "    torch.cuda.empty_cache()\n",
    "the collector between epochs": "    import gc\n    gc.collect()\n",
    "clean-up after an error": "    try:\n        check()\n    except RuntimeError:\n        print(loss.item())\n",
    "a test that stops the run": "        if not ok:\n            raise ValueError(loss.item())\n",
    "counts of Python": "        n = int(step)\n        seen += len(x)\n        s = x.ndim\n        m = float(lr)\n",
}
BEFORE = {
    "a tensor on the CPU at start-up": "weights = torch.tensor([0.1, 0.9]).to(device)\nones = torch.ones(8).cuda()\n",
    "a worker count that comes from elsewhere": (
        "def make(cfg, n):\n    a = DataLoader(Images(), num_workers=cfg.n, pin_memory=True)\n"
        "    b = DataLoader(Images(), num_workers=int(os.environ['N']), pin_memory=True)\n"
        "    c = DataLoader(Images(), num_workers=os.cpu_count() // 2, pin_memory=True)\n"
        "    return DataLoader(Images(), num_workers=n, pin_memory=True)\n"
    ),
    "a debugging aid behind an option that is off": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--debug', action='store_true')\n"
        "args = p.parse_args()\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n"
    ),
    "a warm-up that is timed": (
        "import time\ndef benchmark(model):\n    for _ in range(10):\n        start = time.time()\n"
        "        model(x).sum().backward()\n        torch.cuda.synchronize()\n        print(time.time() - start)\n"
    ),
    "a number that gradients are clipped to": "norm = torch.nn.utils.clip_grad_norm_\n",
    "layers that are compiled one by one": "for layer in model.layers:\n    layer.f = torch.compile(layer.f)\n",
}


@pytest.mark.parametrize("name", [*LOOKS_LIKE, *BEFORE])
def test_what_only_looks_like_a_mistake_draws_no_alarm(name: str, tmp_path: Path) -> None:
    code = HEAD + BEFORE.get(name, "") + LOOP + LOOKS_LIKE.get(name, "")
    (tmp_path / "train.py").write_text(code)
    result = audit([tmp_path])
    assert not result.unread
    assert [(one.rule, one.line, one.code, one.sure) for one in result.findings] == []

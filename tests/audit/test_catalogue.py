"""What the audit promises to know, each in the form that people write first and in one that only looks like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.audit.engine import audit

TORCH = (
    "import torch\nfrom torch.utils.data import DataLoader, Dataset, IterableDataset\nimport torch.nn.functional as F\n"
)


def step(line: str, before: str = "") -> str:
    inside = line.replace("\n", "\n    ")
    return (
        f"{TORCH}{before}for i, (x, y) in enumerate(train_loader):\n    loss = model(x.cuda(non_blocking=True), y)\n"
        f"    loss.backward()\n    optimizer.step()\n    {inside}\n"
    )


def sample(line: str, before: str = "") -> str:
    inside = line.replace("\n", "\n        ")
    return f"{TORCH}{before}class D(Dataset):\n    def __getitem__(self, i):\n        {inside}\n"


def loader(arguments: str) -> str:
    work = "class D(Dataset):\n    def __getitem__(self, i):\n        return read(self.files[i])\n"
    moved = "    for x, y in loader:\n        loss = model(x.cuda(non_blocking=True), y)\n        loss.backward()\n"
    moved += "        optimizer.step()\n"
    return f"{TORCH}{work}loader = DataLoader(D(), {arguments})\nfor epoch in range(9):\n{moved}"


def forward(line: str) -> str:
    inside = line.replace("\n", "\n        ")
    return (
        f"{TORCH}class Net(torch.nn.Module):\n    def forward(self, x):\n        {inside}\n        return x\n"
        "model = torch.compile(Net())\n"
    )


DDP = "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
QKV = "def f(q, k, v):\n    {}\n"

#: what: (rule, code that has it, code that only looks like it)
PROMISED: dict[str, tuple[str, str, str]] = {
    "no workers": ("T4", loader("num_workers=0"), loader("num_workers=8")),
    "no pinning": ("T6", loader("num_workers=8"), loader("num_workers=8, pin_memory=True")),
    "workers restarted": ("T5", loader("num_workers=8"), loader("num_workers=8, persistent_workers=True")),
    "workers spawned": (
        "T5",
        loader("num_workers=8, multiprocessing_context='spawn'"),
        loader("num_workers=8, multiprocessing_context='spawn', persistent_workers=True"),
    ),
    "prefetch of one": ("X65", loader("num_workers=8, prefetch_factor=1"), loader("num_workers=8, prefetch_factor=4")),
    "pandas rows": ("X40", sample("return self.df.iloc[i]['a']"), sample("return self.values[i]")),
    "regex": ("T8", sample("return re.sub('a+', 'b', self.text[i])", "import re\n"), sample("return self.text[i]")),
    "tokenizer": (
        "T8",
        sample("return self.tokenizer(self.text[i], padding='max_length')"),
        sample("return self.tokens[i]"),
    ),
    "heavy transforms": (
        "T8",
        sample("return librosa.load(self.files[i])", "import librosa\n"),
        sample("return self.waves[i]"),
    ),
    "image decode": (
        "T8",
        sample("return Image.open(self.files[i]).convert('RGB')", "from PIL import Image\n"),
        sample("return self.images[i]"),
    ),
    "h5py": (
        "X41",
        sample("return h5py.File(self.path)['x'][i]", "import h5py\n"),
        sample("if self.f is None:\n    self.f = h5py.File(self.path)\nreturn self.f['x'][i]", "import h5py\n"),
    ),
    "zarr": ("X41", sample("return zarr.open(self.path)[i]", "import zarr\n"), sample("return self.zarr[i]")),
    "objects held": (
        "X42",
        TORCH + "import json\nclass D(Dataset):\n    def __init__(self, p):\n        self.rows = json.load(open(p))\n"
        "    def __getitem__(self, i):\n        return self.rows[i]\n",
        TORCH + "import json, numpy\nclass D(Dataset):\n    def __init__(self, p):\n"
        "        self.rows = numpy.array(json.load(open(p)))\n    def __getitem__(self, i):\n"
        "        return self.rows[i]\n",
    ),
    "not sharded": (
        "X43",
        TORCH + "class D(IterableDataset):\n    def __iter__(self):\n        yield from self.rows\n"
        "l = DataLoader(D(), num_workers=4)\n",
        TORCH + "class D(IterableDataset):\n    def __iter__(self):\n        yield from self.rows\n"
        "l = DataLoader(D(), num_workers=1)\n",
    ),
    "pinned by the loop": ("T6", step("z = x.pin_memory().cuda()"), step("z = x.pin_memory()")),
    "blocking copies": ("T6", step("y = y.cuda()"), step("y = y.cuda(non_blocking=True)")),
    "built on the CPU": ("X45", step("z = torch.zeros(3).cuda()"), step("z = torch.zeros(3, device='cuda')")),
    "TF32": (
        "T9",
        TORCH + "torch.backends.cuda.matmul.allow_tf32 = False\n",
        TORCH + "torch.backends.cuda.matmul.allow_tf32 = True\n",
    ),
    "matmul precision": (
        "T9",
        TORCH + "torch.set_float32_matmul_precision('highest')\n",
        TORCH + "torch.set_float32_matmul_precision('high')\n",
    ),
    "cudnn search": (
        "X48",
        "import random, torch\ntorch.backends.cudnn.benchmark = True\nsize = random.randint(400, 600)\n",
        "import torch\ntorch.backends.cudnn.benchmark = True\nsize = 500\n",
    ),
    "deterministic": (
        "X47",
        TORCH + "torch.backends.cudnn.deterministic = True\n",
        TORCH + "torch.backends.cudnn.deterministic = False\n",
    ),
    "anomaly": (
        "T12",
        TORCH + "torch.autograd.set_detect_anomaly(True)\n",
        TORCH + "with torch.autograd.set_detect_anomaly(True):\n    check()\n",
    ),
    "zero_grad": ("X49", step("optimizer.zero_grad(set_to_none=False)"), step("optimizer.zero_grad()")),
    "for-loop optimizer": (
        "X11",
        TORCH + "o = torch.optim.Adam(p.cuda(), foreach=False)\n",
        TORCH + "o = torch.optim.Adam(p.cuda(), fused=True)\n",
    ),
    "no AMP": ("T13", step("pass"), step("pass", "scaler = torch.amp.GradScaler()\n")),
    "scaler with bf16": (
        "X55",
        step("pass", "s = torch.amp.GradScaler()\na = torch.autocast('cuda', dtype=torch.bfloat16)\n"),
        step("pass", "s = torch.amp.GradScaler()\na = torch.autocast('cuda', dtype=torch.float16)\n"),
    ),
    "scaler made anew": (
        "X55",
        step("s = torch.amp.GradScaler()", "a = torch.autocast('cuda', dtype=torch.float16)\n"),
        step("pass", "s = torch.amp.GradScaler()\na = torch.autocast('cuda', dtype=torch.float16)\n"),
    ),
    "attention by hand": (
        "T14",
        TORCH + QKV.format("return F.softmax(q @ k.transpose(-2, -1) / 8, dim=-1) @ v"),
        TORCH + QKV.format("return F.scaled_dot_product_attention(q, k, v)"),
    ),
    "need_weights": (
        "X50",
        TORCH
        + "class A(torch.nn.Module):\n    def __init__(self):\n        self.a = torch.nn.MultiheadAttention(8, 2)\n"
        "    def forward(self, x):\n        return self.a(x, x, x)[0]\n",
        TORCH
        + "class A(torch.nn.Module):\n    def __init__(self):\n        self.a = torch.nn.MultiheadAttention(8, 2)\n"
        "    def forward(self, x):\n        return self.a(x, x, x, need_weights=False)[0]\n",
    ),
    "mask that blocks flash": (
        "X51",
        TORCH + QKV.format("return F.scaled_dot_product_attention(q, k, v, torch.tril(torch.ones(8, 8)))"),
        TORCH + QKV.format("return F.scaled_dot_product_attention(q, k, v, is_causal=True)"),
    ),
    "compile in a loop": ("T16", step("m = torch.compile(net)"), step("pass", "m = torch.compile(net)\n")),
    "compile after DDP": (
        "X63",
        TORCH + DDP + "model = torch.compile(model)\n",
        TORCH + DDP.replace("DDP(net)", "DDP(torch.compile(net))"),
    ),
    "compile, changing shapes": (
        "X53",
        "import random, torch\nm = torch.compile(net)\nfor x in train_loader:\n    size = random.randint(200, 300)\n"
        "    x = F.interpolate(x.cuda(), size=size)\n    m(x).sum().backward()\n    optimizer.step()\n",
        "import torch\nm = torch.compile(net)\nfor x in train_loader:\n    x = F.interpolate(x.cuda(), size=9)\n"
        "    m(x).sum().backward()\n    optimizer.step()\n",
    ),
    "break by item": ("X52", forward("n = x.max().item()"), forward("n = x.max()")),
    "break by print": ("X52", forward("print(x)"), forward("n = x")),
    "break by numpy": ("X52", forward("n = x.detach().cpu().numpy()"), forward("n = x.detach()")),
    "break by a branch": ("X52", forward("if x.sum() > 0:\n    x = -x"), forward("if self.training:\n    x = -x")),
    "checkpoint": (
        "X54",
        TORCH + "from torch.utils.checkpoint import checkpoint\ny = checkpoint(f, x)\n",
        TORCH + "from torch.utils.checkpoint import checkpoint\ny = checkpoint(f, x, use_reentrant=False)\n",
    ),
    "logging": (
        "X8",
        step("wandb.log({'a': 1})", "import wandb\n"),
        step("if i % 9 == 0:\n    wandb.log({})", "import wandb\n"),
    ),
    "plotting": (
        "X8",
        step("plt.savefig('a')", "import matplotlib.pyplot as plt\n"),
        step("if i % 9 == 0:\n    print(i)"),
    ),
    "progress that prints": ("X8", step("print(i)"), step("if i % 50 == 0:\n    print(i)")),
    "saving": ("X6", step("torch.save(model, 'a')"), step("if i % 500 == 0:\n    torch.save(model, 'a')")),
    "validating": (
        "X7",
        step("validate(model)", "def validate(m):\n    for x in val_loader:\n        m(x)\n"),
        step("if i % 99 == 0:\n    validate(model)", "def validate(m):\n    for x in val_loader:\n        m(x)\n"),
    ),
    "empty_cache": ("X12", step("torch.cuda.empty_cache()"), step("if i % 99 == 0:\n    torch.cuda.empty_cache()")),
    "gc": ("X10", step("gc.collect()", "import gc\n"), step("if i % 99 == 0:\n    gc.collect()", "import gc\n")),
    "synchronize": ("X5", step("torch.cuda.synchronize()"), step("if i % 99 == 0:\n    torch.cuda.synchronize()")),
    "item": ("X5", step("t += loss.item()"), step("if i % 99 == 0:\n    t += loss.item()")),
    "EMA on the CPU": (
        "X9",
        step("for a, b in zip(ema.parameters(), model.parameters()):\n    a.copy_(a * 0.9 + b.cpu() * 0.1)"),
        step("t += loss.detach()"),
    ),
    "metrics on the CPU": (
        "X9",
        step("a = accuracy_score(y, p)", "from sklearn.metrics import accuracy_score\n"),
        step("if i % 99 == 0:\n    a = accuracy_score(y, p)", "from sklearn.metrics import accuracy_score\n"),
    ),
    "DataParallel": ("X56", TORCH + "m = torch.nn.DataParallel(net)\n", TORCH + DDP),
    "unused parameters": (
        "X57",
        TORCH + DDP.replace("DDP(net)", "DDP(net, find_unused_parameters=True)"),
        TORCH + DDP,
    ),
    "no_sync": (
        "X58",
        TORCH + DDP + "for i, x in enumerate(loader):\n    (model(x) / 8).backward()\n"
        "    if (i + 1) % 8 == 0:\n        optimizer.step()\n",
        TORCH + DDP + "for i, x in enumerate(loader):\n    model(x).backward()\n    optimizer.step()\n",
    ),
    "set_epoch": (
        "X59",
        TORCH + "s = torch.utils.data.DistributedSampler(d)\nl = DataLoader(d, sampler=s)\n"
        "for epoch in range(9):\n    run(l)\n",
        TORCH + "s = torch.utils.data.DistributedSampler(d)\nl = DataLoader(d, sampler=s)\nfor epoch in range(9):\n"
        "    s.set_epoch(epoch)\n    run(l)\n",
    ),
    "gloo": (
        "X60",
        "import torch\ntorch.distributed.init_process_group('gloo')\nm.cuda()\n",
        "import torch\ntorch.distributed.init_process_group('nccl')\nm.cuda()\n",
    ),
    "threads set too late": (
        "X61",
        "import numpy\nimport os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n",
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport numpy\nimport torch\n",
    ),
    "autograd in evaluation": (
        "X46",
        TORCH + "def evaluate(m):\n    m.eval()\n    for x in val_loader:\n        m(x.cuda())\n",
        TORCH + "@torch.no_grad()\ndef evaluate(m):\n    m.eval()\n    for x in val_loader:\n        m(x.cuda())\n",
    ),
    "kept batches": ("X44", step("kept.append(loss)"), step("kept.append(loss.detach())")),
}


def rules(code: str, folder: Path, *levels: str) -> set[str]:
    folder.mkdir()
    (folder / "train.py").write_text(code)
    result = audit([folder])
    assert not result.unread, result.unread
    return {one.rule for one in result.findings if one.sure in levels}


@pytest.mark.parametrize("what", PROMISED)
def test_what_is_promised_is_found_and_what_looks_like_it_is_not(what: str, tmp_path: Path) -> None:
    rule, has, lacks = PROMISED[what]
    assert rule in rules(has, tmp_path / "has", "certain", "likely", "possible")
    assert rule not in rules(lacks, tmp_path / "lacks", "certain", "likely")

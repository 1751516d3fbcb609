"""Published cases whose cause can be seen in source: found as it was, silent as it was mended. Ids as in cases.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from underfed.audit.engine import audit
from underfed.audit.measured import rank

STEP = "    loss = criterion(model(x.cuda(non_blocking=True)), y)\n    loss.backward()\n    optimizer.step()\n"
LOADER = "from torch.utils.data import DataLoader, Dataset\n"

#: id: (rule, code as it was, code as it was mended)
CASES: dict[str, tuple[str, str, str]] = {
    "W02": (
        "T4",
        LOADER
        + "class Windows(Dataset):\n    def __getitem__(self, i):\n        return read(self.files[i])\n"
        + "loader = DataLoader(Windows(), batch_size=64, shuffle=True)\n",
        LOADER
        + "class Windows(Dataset):\n    def __getitem__(self, i):\n        return read(self.files[i])\n"
        + "loader = DataLoader(Windows(), batch_size=64, shuffle=True, num_workers=8)\n",
    ),
    "W02, its control: windows in memory": (
        "-T4",
        LOADER
        + "class Windows(Dataset):\n    def __getitem__(self, i):\n        return self.x[i], self.y[i]\n"
        + "loader = DataLoader(Windows(), batch_size=64, shuffle=True)\n",
        "",
    ),
    "W21": (
        "T5",
        LOADER + f"loader = DataLoader(data, num_workers=4)\nfor epoch in range(9):\n  for x, y in loader:\n{STEP}",
        LOADER + "loader = DataLoader(data, num_workers=4, persistent_workers=True)\n"
        f"for epoch in range(9):\n  for x, y in loader:\n{STEP}",
    ),
    "T02": (
        "X61",
        "import cv2\n" + LOADER + "class D(Dataset):\n    def __getitem__(self, i):\n"
        "        return cv2.resize(self.read(i), (224, 224))\nloader = DataLoader(D(), num_workers=8)\n",
        "import cv2\ncv2.setNumThreads(0)\n" + LOADER + "class D(Dataset):\n    def __getitem__(self, i):\n"
        "        return cv2.resize(self.read(i), (224, 224))\nloader = DataLoader(D(), num_workers=8)\n",
    ),
    "X02": (
        "X40",
        LOADER + "class D(Dataset):\n    def __getitem__(self, i):\n"
        "        start = self.table.iloc[i]['start']\n        return self.x[start : self.table.iloc[i]['stop']]\n",
        LOADER + "class D(Dataset):\n    def __init__(self, table):\n        self.start = table['start'].to_numpy()\n"
        "        self.stop = table['stop'].to_numpy()\n    def __getitem__(self, i):\n"
        "        return self.x[self.start[i] : self.stop[i]]\n",
    ),
    "M01": (
        "X42",
        "import json\n" + LOADER + "class D(Dataset):\n    def __init__(self, path):\n"
        "        self.rows = json.load(open(path))\n    def __getitem__(self, i):\n        return self.rows[i]\n",
        "import json\nimport numpy as np\n" + LOADER + "class D(Dataset):\n    def __init__(self, path):\n"
        "        self.rows = np.array(json.load(open(path)))\n    def __getitem__(self, i):\n"
        "        return self.rows[i]\n",
    ),
    "M03": (
        "X44",
        "kept = []\nfor x, y in train_loader:\n    kept.append(y)\n" + STEP,
        "kept = []\nfor x, y in train_loader:\n    kept.append(y.clone())\n" + STEP,
    ),
    "G01": (
        "X5",
        "from tqdm import tqdm\nbar = tqdm(loader)\nfor x, y in bar:\n"
        + STEP
        + "    bar.set_description(f'loss {loss.item()}')\n",
        "from tqdm import tqdm\nbar = tqdm(loader)\nfor i, (x, y) in enumerate(bar):\n"
        + STEP
        + "    if i % 50 == 0:\n        bar.set_description(f'loss {loss.item()}')\n",
    ),
    "D01": (
        "T12",
        "import torch\ntorch.autograd.set_detect_anomaly(True)\nfor x, y in loader:\n" + STEP,
        "import torch\nfor x, y in loader:\n"
        + STEP
        + "with torch.autograd.set_detect_anomaly(True):\n    check(model)\n",
    ),
    "D05": (
        "X48",
        "import random, torch\ntorch.backends.cudnn.benchmark = True\nsize = random.randint(400, 600)\n",
        "import random, torch\ntorch.backends.cudnn.benchmark = True\nsize = 512\n",
    ),
    "A01": (
        "X50",
        "import torch\nclass Block(torch.nn.Module):\n    def __init__(self):\n"
        "        self.attn = torch.nn.MultiheadAttention(64, 4)\n    def forward(self, x):\n"
        "        x, _ = self.attn(x, x, x)\n        return x\n",
        "import torch\nclass Block(torch.nn.Module):\n    def __init__(self):\n"
        "        self.attn = torch.nn.MultiheadAttention(64, 4)\n    def forward(self, x):\n"
        "        x, _ = self.attn(x, x, x, need_weights=False)\n        return x\n",
    ),
    "C01": (
        "X52",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        n = x.max().item()\n"
        "        return x[:n]\nmodel = torch.compile(Net())\n",
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x / x.max()\n"
        "model = torch.compile(Net())\n",
    ),
    "N01": (
        "X58",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
        "for i, x in enumerate(loader):\n    loss = model(x) / 8\n    loss.backward()\n"
        "    if (i + 1) % 8 == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nfrom contextlib import nullcontext\n"
        "model = DDP(net)\n"
        "for i, x in enumerate(loader):\n    last = (i + 1) % 8 == 0\n"
        "    with nullcontext() if last else model.no_sync():\n        loss = model(x) / 8\n        loss.backward()\n"
        "    if last:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ),
    "N01, misplaced": (
        "X58",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(net)\n"
        "for i, x in enumerate(loader):\n    loss = model(x)\n    if (i + 1) % 8:\n        with model.no_sync():\n"
        "            loss.backward()\n    else:\n        loss.backward()\n        optimizer.step()\n",
        "",
    ),
}


def rules(code: str, folder: Path) -> set[str]:
    folder.mkdir()
    (folder / "train.py").write_text(code)
    result = audit([folder])
    assert not result.unread
    return {one.rule for one in result.findings if one.sure != "possible"}


@pytest.mark.parametrize("case", CASES)
def test_a_published_case_is_found_and_its_mended_form_is_not(case: str, tmp_path: Path) -> None:
    rule, before, after = CASES[case]
    found = rules(before, tmp_path / "before")
    assert (rule in found) if not rule.startswith("-") else (rule[1:] not in found)
    assert rule not in rules(after, tmp_path / "after")


HOLD = "import torch\nfrom torch.utils.data import DataLoader, Dataset\n"
FED = "loader = DataLoader(D(), num_workers=8, pin_memory=True, persistent_workers=True)\n"
LOOP = (
    "for epoch in range(9):\n  for x in loader:\n    with torch.autocast('cuda', torch.bfloat16):\n"
    "      loss = model(x.cuda(non_blocking=True))\n    loss.backward()\n    optimizer.step()\n"
)

#: id of a case whose obvious reading was wrong: (the surest that may be said of any line, code)
TRAPS: dict[str, tuple[str | None, str]] = {
    "T07": (
        None,
        "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ['MKL_NUM_THREADS'] = '1'\n"
        + HOLD
        + "class D(Dataset):\n    def __getitem__(self, i):\n        return read(self.files[i])\n"
        + FED
        + LOOP,
    ),
    "T07, without": (
        None,
        HOLD + "class D(Dataset):\n    def __getitem__(self, i):\n        return read(self.files[i])\n" + FED + LOOP,
    ),
    "T08": (
        "likely",
        "import cv2\n"
        + HOLD
        + "class D(Dataset):\n    def __getitem__(self, i):\n        return cv2.resize(self.read(i), (64, 64))\n"
        + FED
        + LOOP,
    ),
    "S07": (
        None,
        HOLD
        + "class D(Dataset):\n    def __getitem__(self, i):\n        return torch.load(self.files[i])\n"
        + FED
        + LOOP,
    ),
    "F02": (
        None,
        "import xarray\n" + HOLD + "class D(Dataset):\n    def __init__(self, path):\n"
        "        self.ocean = xarray.open_zarr(path, chunks={'time': 1})\n    def __getitem__(self, i):\n"
        "        return torch.as_tensor(self.ocean.isel(time=i).to_array().values)\n" + FED + LOOP,
    ),
    "X08": (
        "likely",
        "from PIL import Image\n"
        + HOLD
        + "class D(Dataset):\n    def __getitem__(self, i):\n        return self.transform(Image.open(self.files[i]))\n"
        + FED
        + LOOP,
    ),
    "G09": (
        None,
        "import torch, torchmetrics\niou = torchmetrics.JaccardIndex('multiclass', num_classes=9).cuda()\n"
        "@torch.no_grad()\ndef validate(model):\n  for x, y in val_loader:\n"
        "    iou.update(model(x.cuda()), y.cuda())\n  return iou.compute().item()\n",
    ),
    "P02": (
        "possible",
        "import torch\nmodel = torch.nn.EmbeddingBag(9, 3).cuda()\nfor x in loader:\n"
        "    with torch.autocast('cuda', enabled=False):\n        loss = model(x.cuda(non_blocking=True)).sum()\n"
        "    loss.backward()\n    optimizer.step()\n",
    ),
    "N05": ("likely", "import torch\nmodel = torch.nn.DataParallel(net.cuda())\n"),
}


@pytest.mark.parametrize("case", TRAPS)
def test_what_misled_people_is_not_said_for_sure(case: str, tmp_path: Path) -> None:
    most, code = TRAPS[case]
    (tmp_path / "train.py").write_text(code)
    result = audit([tmp_path])
    assert not result.unread
    levels = [] if most is None else ["likely", "possible"] if most == "likely" else ["possible"]
    assert [(one.rule, one.line, one.sure) for one in result.findings if one.sure not in levels] == []


@pytest.mark.parametrize(("bound", "cause"), [("compute", None), ("data", "T3")])
def test_threads_of_opencv_matter_where_a_run_waits_for_data_and_not_where_the_gpu_is_busy(
    bound: str, cause: str | None, tmp_path: Path
) -> None:
    """T08 against T02: the source is the same, only a run tells them apart."""
    (tmp_path / "train.py").write_text(TRAPS["T08"][1])
    found = [one for one in audit([tmp_path]).findings if one.rule == "X61"]
    assert len(found) == 1
    seen = {"name": "threads", "stage": "box", "bound": "data", "numerics": "exact", "summary": "s", "helps_now": True}
    diagnosis = {
        "schema": "underfed.diagnosis/1",
        "subject": {"kind": "run", "paths": ["train.py"]},
        "verdict": {"bound": bound, "cause": cause, "confidence": "high", "text": "t"},
        "findings": [{"rule": cause, "fix": {"text": "fewer"}, **seen}] if cause else [],
    }
    (tmp_path / "diagnosis.json").write_text(json.dumps(diagnosis))
    kept, folded = rank(found, tmp_path)
    assert (len(kept), len(folded)) == ((1, 0) if cause else (0, 1))

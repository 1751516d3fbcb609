"""Fixes of whole files that nobody wrote by hand: exact, final, parsed by another parser, and nothing else is lost."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest
from audit_help import TRAINING
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from underfed.audit.engine import judge
from underfed.audit.finding import AuditFinding, Result
from underfed.audit.fix import Fixed, plan
from underfed.audit.registry import RULES
from underfed.audit.sources import Source, load

NOTE = st.sampled_from(["", "  # keep (this), \u00e9", "\t# #"])
GAP = st.sampled_from(["", " ", "\n        ", "  # why )\n        "])

#: Statements of a step with something to mend, and some with nothing; `{g}` is a gap inside brackets.
STEP = st.sampled_from(
    [
        "x = x.to({g}device{g})",
        "y = y.to(device,{g}non_blocking=False)",
        "x, y = x.to(device), y.to(device)",
        "x = x.cuda()",
        "z = torch.zeros({g}4, 3{g}).to(device)",
        "z = torch.arange(len(x)).to({g}device)",
        "z = (torch.ones(2){g}.to(device))",
        "z = torch.full((2,), 1.5).long().to(device){m}; k = 1",
        "s = '\u00e9\u00e9'; x = x.to(device)",
        "x = x.pin_memory().to(device, non_blocking=True)",
        "x = (x{g}.pin_memory(){g}.to(device))",
        "torch.cuda.synchronize()",
        "kept.append(loss)",
        "total += loss",
        "total += loss.item()",
        "print('step')",
        "torch.cuda.empty_cache()",
        "optimizer.zero_grad({g}set_to_none=False)",
        "optimizer.zero_grad()",
        "q = '''\n  # not a comment\n'''",
    ]
)
HEAD = st.sampled_from(
    [
        "loader = DataLoader({g}data, batch_size=4{g})",
        "loader = DataLoader(\n    data,  # samples\n    num_workers=2,\n)",
        "loader = DataLoader(data, **{{'num_workers': 2}})",
        "torch.backends.cuda.matmul.allow_tf32 = False",
        "torch.autograd.set_detect_anomaly({g}True)",
        "torch.backends.cudnn.allow_tf32 = False",
        "model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)",
        "optimizer = torch.optim.Adam(model.parameters(), foreach={g}False)",
        "import os",
    ]
)


@st.composite
def files(draw: st.DrawFn) -> str:
    def filled(pieces: st.SearchStrategy[str], indent: str) -> str:
        text = draw(pieces).replace("{g}", "\0").replace("{m}", "")
        while "\0" in text:
            inside = draw(GAP) if "(" in text.partition("\0")[0] else ""
            text = text.replace("\0", inside, 1)
        text = text.replace("{{", "{").replace("}}", "}")
        note = "" if "'''" in text else draw(NOTE)
        return indent + text + note

    lines = ["import torch", "from torch.utils.data import DataLoader", "device = torch.device('cuda')"]
    lines += [filled(HEAD, "") for _ in range(draw(st.integers(1, 3)))]
    lines += ["for x, y in train_loader:"]
    indent = draw(st.sampled_from(["    ", "\t", "  "]))
    # One batch is moved whatever is mended: where nothing is, pinning and precision are no questions.
    lines += [
        f"{indent}w = y.to(device, non_blocking=True)",
        f"{indent}loss = model(x, w)",
        f"{indent}loss.backward()",
        f"{indent}optimizer.step()",
    ]
    lines += [filled(STEP, indent) for _ in range(draw(st.integers(1, 6)))]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return "\n".join(lines).replace("\n", end) + draw(st.sampled_from(["", end]))


def read(path: Path) -> tuple[list[Source], Result]:
    sources, result = load([path])
    return sources, judge(sources, result, RULES)


def comments(source: str) -> list[str]:
    return [t.string for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]


def undone(fixed: Fixed) -> str:
    """Return the text with each edit taken back, by the edits alone."""
    edits = sorted((edit for one in fixed.findings if one.fix for edit in one.fix.edits), key=lambda edit: edit.start)
    before, text, shift = fixed.source.text, fixed.text, 0
    for edit in edits:
        at = edit.start + shift
        assert text[at : at + len(edit.text)] == edit.text
        shift += len(edit.text) - (edit.end - edit.start)
    for edit in reversed(edits):
        shift -= len(edit.text) - (edit.end - edit.start)
        at = edit.start + shift
        text = text[:at] + before[edit.start : edit.end] + text[at + len(edit.text) :]
    return text


def counted(findings: list[AuditFinding]) -> Counter[str]:
    return Counter(one.rule for one in findings)


@pytest.mark.parametrize("unsafe", [False, True])
@given(source=files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_fixes_of_a_whole_file_are_exact_and_final_and_lose_nothing(unsafe: bool, source: str, tmp_path: Path) -> None:
    libcst = pytest.importorskip("libcst")
    path = tmp_path / "train.py"
    path.write_text(source, encoding="utf-8", newline="")
    sources, result = read(path)
    if result.unread:  # a gap that Python does not take there
        return
    for _ in range(6):
        changes = plan(sources, result.findings, unsafe=unsafe)
        if not changes:
            break
        [change] = changes
        assert undone(change) == change.source.text
        ast.parse(change.text)
        assert libcst.parse_module(change.text).code == change.text
        assert comments(change.text) == comments(source)
        path.write_text(change.text, encoding="utf-8", newline="")
        before, settled = counted(result.findings), counted(list(change.findings))
        sources, result = read(path)
        after = counted(result.findings)
        assert not result.unread
        assert all(after[rule] >= before[rule] - settled[rule] for rule in before), (
            "a finding that was not mended is gone"
        )
        assert all(after[rule] <= before[rule] for rule in after), "a fix made a finding"
    else:
        pytest.fail("fixes never end")
    assert not [one for one in result.findings if one.fix and (one.fix.safe or unsafe)]


PROGRAM = """\
import json
import torch
from torch.utils.data import DataLoader, Dataset
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Data(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(8, generator=g)
        return {{"x": x, "y": x.sum()}}


options = dict(batch_size=8, shuffle=True)
loader = DataLoader(Data(), **options)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters())
losses = []
for epoch in range(2):
    for step, batch in enumerate(loader):
        x = batch["x"].to(  # the samples
            device
        )
        y = batch["y"].to(device=device)
        {work}
        loss = ((model(x).squeeze(1) - y - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
print(json.dumps([value.hex() for value in losses]))
"""
WORK = [
    "target = torch.full((8,), 0.5).to(device) + torch.arange(8).to(device) * torch.eye(8).to(device).sum(0)",
    "target = torch.ones(8).long().unsqueeze(0).to(device) + torch.zeros(8, dtype=torch.float64).to(device)",
    "target = torch.linspace(0, 1, 8).to(device)\n        if step < 0:\n            torch.cuda.synchronize()",
]
RUN = """\
import runpy, sys, contextlib, io, json
for path in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(path)
    print(out.getvalue().splitlines()[-1])
"""


@pytest.mark.torch
def test_programs_with_every_safe_fix_give_the_same_losses_to_the_bit(tmp_path: Path) -> None:
    """Those of the CPU; what a fix does beside a GPU is in its rule's reason: where numbers are made is exact."""
    pytest.importorskip("torch")
    paths = []
    for number, text in enumerate([TRAINING, *(PROGRAM.format(work=work) for work in WORK)]):
        path = tmp_path / f"program_{number}.py"
        path.write_text(text)
        paths.append(path)
    fixed = []
    titles: set[str] = set()
    for path in paths:
        sources, result = read(path)
        [change] = plan(sources, result.findings, unsafe=False)
        titles |= {one.fix.title for one in change.findings if one.fix}
        fixed.append(path.with_stem(f"{path.stem}_fixed"))
        fixed[-1].write_text(change.text)
    assert {"copy beside the computation", "pin the batches", "build it on the device"} <= titles
    command = [sys.executable, "-W", "ignore", "-c", RUN, *map(str, [*paths, *fixed])]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    losses = [json.loads(line) for line in lines]
    assert losses[: len(paths)] == losses[len(paths) :]
    assert len({tuple(one) for one in losses}) == len(paths)

"""Reading: what cannot be read is one line and the rest goes on; values and calls are followed across modules."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from audit_help import LOOP, run_audit

from underfed.audit.engine import audit
from underfed.audit.registry import find

STEP = "    loss = model(x.cuda())\n    loss.backward()\n    optimizer.step()\n"


def test_hostile_files_are_one_line_each_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(LOOP)
    (tmp_path / "python2.py").write_text("print 'x'\n")
    (tmp_path / "null.py").write_bytes(b"x = 1\0\n")
    (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
    (tmp_path / "unknown.py").write_bytes(b"# -*- coding: no-such -*-\nx = 1\n")
    (tmp_path / "deep.py").write_text("x = " + "(" * 5000 + ")" * 5000 + "\n")
    (tmp_path / "sum.py").write_text("import torch\nx = " + "+".join(["a"] * 20_000) + "\n")
    (tmp_path / "long.py").write_text("x = '" + "a" * 1_500_000 + "'\n")
    (tmp_path / "big.py").write_text("# x\n" * 600_000)
    (tmp_path / "bad.ipynb").write_text("{")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    os.mkfifo(tmp_path / "pipe.py")
    done = run_audit(tmp_path)
    assert done.returncode == 1
    assert "good.py:17:14: X5" in done.stdout
    unread = {line.split(":")[0].rpartition("/")[2] for line in done.stdout.splitlines() if ": not read: " in line}
    assert {"python2.py", "null.py", "latin.py", "unknown.py", "deep.py", "long.py", "big.py", "bad.ipynb"} <= unread
    assert unread <= {
        "python2.py",
        "null.py",
        "latin.py",
        "unknown.py",
        "deep.py",
        "long.py",
        "big.py",
        "bad.ipynb",
        "sum.py",
    }
    assert done.stderr == ""


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig", "cp1252"])
def test_columns_and_fixes_hold_in_other_encodings_and_line_ends(encoding: str, tmp_path: Path) -> None:
    mark = "" if encoding.startswith("utf-8") else f"# -*- coding: {encoding} -*-\n"
    text = mark + LOOP.replace("# keep", "# \xe9t\xe9").replace("x = x.to(device)", "s = '\xe9\xe9'; x = x.to(device)")
    text = text.replace("\n", "\r\n")
    path = tmp_path / "train.py"
    path.write_bytes(text.encode(encoding))
    line = 11 if mark else 10
    assert f":{line}:19: T6 x.to(device)" in run_audit(path).stdout
    run_audit(path, "--fix")
    after = path.read_bytes().decode(encoding)
    assert "s = '\xe9\xe9'; x = x.to(device, non_blocking=True)  # \xe9t\xe9\r\n" in after
    assert after.count("\r\n") == after.count("\n")


def test_nothing_is_run_or_imported(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w')\n"
    (tmp_path / "helper.py").write_text(trap)
    (tmp_path / "train.py").write_text("import helper\n" + trap + LOOP)
    (tmp_path / "sitecustomize.py").write_text(trap)
    run_audit("train.py", "--fix", cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_values_are_followed_into_other_modules(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("WORKERS = 0\nMORE = 4\n")
    (tmp_path / "train.py").write_text(
        "from torch.utils.data import DataLoader\nimport settings\nfrom settings import MORE, WORKERS\n"
        "a = DataLoader(d, num_workers=WORKERS)\nb = DataLoader(d, num_workers=MORE)\n"
        "c = DataLoader(d, num_workers=settings.WORKERS)\n"
    )
    rule = find("T4")
    assert rule is not None
    for paths in ([tmp_path], [tmp_path / "train.py"]):
        assert [one.line for one in audit(paths, rules=[rule]).findings] == [4, 6]


@pytest.mark.parametrize(
    "settings",
    [
        "import click\n@click.command()\n@click.option('--workers', default=0)\n"
        "def main(workers):\n    LOADER(workers)\n",
        "import typer\ndef main(workers: int = typer.Option(0)):\n    LOADER(workers)\n",
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    workers: int = 0\n"
        "def main(cfg):\n    LOADER(cfg.workers)\n",
        "from absl import flags\nflags.DEFINE_integer('workers', 0, 'help')\n"
        "FLAGS = flags.FLAGS\nLOADER(FLAGS.workers)\n",
        "class T:\n    def __init__(self):\n        self.workers = 0\n    def f(self):\n        LOADER(self.workers)\n",
        "def main(cfg):\n    LOADER(cfg.data.workers)\n",
    ],
    ids=["click", "typer", "dataclass", "absl", "self", "yaml"],
)
def test_settings_are_followed_and_a_default_is_never_certain(settings: str, tmp_path: Path) -> None:
    if "cfg.data" in settings:
        pytest.importorskip("yaml")
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "config.yaml").write_text("data:\n  workers: 0\n")
    code = settings.replace("LOADER(", "DataLoader(Work(), num_workers=")
    work = "class Work(Dataset):\n    def __getitem__(self, i):\n        return load(i)\n"
    (tmp_path / "train.py").write_text("from torch.utils.data import DataLoader, Dataset\n" + work + code)
    rule = find("T4")
    assert rule is not None
    found = audit([tmp_path], rules=[rule]).findings
    assert [one.sure for one in found] == (["certain"] if "self.workers" in code else ["likely"])


def test_the_step_is_found_through_calls_into_other_modules(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text(
        "def update(loss, optimizer):\n    loss.backward()\n    optimizer.step()\n    return loss.item()\n"
    )
    (tmp_path / "train.py").write_text(
        "from engine import update\nfor x in loader:\n    loss = model(x.cuda())\n    update(loss, optimizer)\n"
    )
    rule = find("X5")
    assert rule is not None
    assert [(one.path.rpartition("/")[2], one.line) for one in audit([tmp_path], rules=[rule]).findings] == [
        ("engine.py", 4)
    ]


def test_a_helper_that_throws_switches_on_import_is_told_and_a_script_is_not(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("import torch\ntorch.set_default_dtype(torch.float64)\ndef f(): pass\n")
    (tmp_path / "more.py").write_text(
        "import os\nimport torch\nos.environ['OMP_NUM_THREADS'] = '1'\nos.environ['HOME_PAGE'] = 'x'\n"
        "torch.autograd.set_detect_anomaly(True)\ntorch.backends.cudnn.deterministic = True\n"
        "torch.backends.cudnn.benchmark = True\ndef g():\n    torch.set_num_threads(1)\n"
    )
    (tmp_path / "train.py").write_text("import torch\nimport more\nfrom helper import f\ntorch.set_num_threads(1)\n")
    rule = find("X62")
    assert rule is not None
    assert [(one.path.rpartition("/")[2], one.line) for one in audit([tmp_path], rules=[rule]).findings] == [
        ("helper.py", 2),
        ("more.py", 3),
        ("more.py", 5),
        ("more.py", 6),
    ]


def test_notebooks_are_read_by_cell_and_fixed_in_place(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# é\n"]},
        {
            "cell_type": "code",
            "execution_count": 1,
            "metadata": {},
            "outputs": [],
            "source": ["!pip install x\n", "%matplotlib inline\n", "import torch"],
        },
        {
            "cell_type": "code",
            "execution_count": 2,
            "metadata": {},
            "outputs": [],
            "source": "!ls\nfor x, y in train_loader:\n    x = x.to('cuda')\n" + STEP,
        },
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path = tmp_path / "n.ipynb"
    path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert "n.ipynb:cell 3:3:9: T6 x.to('cuda')" in run_audit(path).stdout
    run_audit(path, "--fix")
    after = json.loads(path.read_text(encoding="utf-8"))
    assert after["cells"][:2] == cells[:2]
    assert after["cells"][2]["source"].startswith(
        "!ls\nfor x, y in train_loader:\n    x = x.to('cuda', non_blocking=True)\n"
    )
    before_lines = json.dumps(book, indent=1, ensure_ascii=False).splitlines()
    changed = [a for a, b in zip(before_lines, path.read_text(encoding="utf-8").splitlines(), strict=True) if a != b]
    assert len(changed) == 1


def test_tests_and_environments_below_a_folder_are_passed_by_and_read_when_named(tmp_path: Path) -> None:
    for name in ("tests/train.py", "venv/lib/train.py", "test_train.py", ".hidden/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(LOOP)
    assert run_audit(tmp_path).returncode == 2
    assert run_audit(tmp_path / "test_train.py").returncode == 1


def test_a_script_that_speaks_of_no_gpu_is_not_judged_by_its_neighbours(tmp_path: Path) -> None:
    loop = "import torch\nfor x in train_loader:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()\n"
    loop += "    t += loss.item()\n"
    (tmp_path / "toy.py").write_text(loop)
    (tmp_path / "real.py").write_text(loop.replace("model(x)", "model(x.cuda())"))
    rule = find("X5")
    assert rule is not None
    assert [(one.path.rpartition("/")[2], one.sure) for one in audit([tmp_path], rules=[rule]).findings] == [
        ("real.py", "certain"),
        ("toy.py", "possible"),
    ]


@pytest.mark.parametrize("name", ["eval/metrics.py", "sample/sample.py", "evaluate.py"])
def test_a_script_that_evaluates_has_no_training_to_wait_for(name: str, tmp_path: Path) -> None:
    code = (
        "from torch.utils.data import DataLoader, Dataset\nclass D(Dataset):\n    def __getitem__(self, i):\n"
        "        return read(i)\ndef run():\n    for x in DataLoader(D()):\n        show(x)\n"
    )
    for at in (name, "data.py"):
        (tmp_path / at).parent.mkdir(exist_ok=True)
        (tmp_path / at).write_text(code)
    rule = find("T4")
    assert rule is not None
    found = {one.path: one.sure for one in audit([tmp_path], rules=[rule]).findings}
    assert (found[str(tmp_path / name)], found[str(tmp_path / "data.py")]) == ("possible", "certain")


NESTED = {
    "brackets": "x = " + "[" * 900 + "]" * 900,
    "minus": "x = " + "-" * 5000 + "1",
    "attributes": "x = a" + ".b" * 20_000,
    "calls": "x = a" + "()" * 20_000,
    "lambdas": "x = " + "lambda: " * 2000 + "1",
    "elif": "if a == 0:\n    pass\n" + "".join(f"elif a == {n}:\n    pass\n" for n in range(1500)),
    "loops": "".join("    " * n + f"for i{n} in x:\n" for n in range(80)) + "    " * 80 + "pass",
    "comparison": "x = " + " < ".join(["a"] * 20_000),
    "and": "x = " + " and ".join(["a"] * 20_000),
    "text": "x = " + " + ".join(["'a'"] * 3000),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_is_nested_deeply_in_the_step_costs_its_own_file_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(LOOP)
    inside = NESTED[name].replace("\n", "\n    ")
    (tmp_path / "deep.py").write_text(
        f"import torch\nfor b in train_loader:\n    loss = model(b.cuda())\n    loss.backward()\n    {inside}\n"
    )
    done = run_audit(tmp_path, "--sure", "possible")
    assert (done.returncode, done.stderr) == (1, "")
    assert "good.py:17:14: X5" in done.stdout
    unread = [line for line in done.stdout.splitlines() if ": not read: " in line]
    assert all("deep.py" in line and "fault" not in line for line in unread)


def test_a_notebook_with_pictures_in_long_lines_is_read(tmp_path: Path) -> None:
    picture = {"output_type": "display_data", "metadata": {}, "data": {"image/png": "a" * 2_500_000}}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [picture], "source": LOOP}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "n.ipynb").write_text(json.dumps(book))
    assert "n.ipynb:cell 1:17:14: X5" in run_audit(tmp_path).stdout
    book["cells"] = [{**cell, "source": "x = '" + "a" * 300_000 + "'"}]
    (tmp_path / "n.ipynb").write_text(json.dumps(book))
    done = run_audit(tmp_path)
    assert (done.returncode, "has a line of more than" in done.stderr) == (2, True)


def test_code_of_another_library_is_not_judged_by_the_rules_of_torch(tmp_path: Path) -> None:
    loop = "for x in train_loader:\n    loss = model(x.cuda())\n    loss.backward()\n    optimizer.step()\n"
    loop += "    loss.item()\n"
    (tmp_path / "real.py").write_text("import torch\n" + loop)
    (tmp_path / "both.py").write_text("import torch\nimport jax.numpy as jnp\n" + loop)
    (tmp_path / "other.py").write_text("import jax.numpy as jnp\n" + loop)
    rule = find("X5")
    assert rule is not None
    found = [one.path.rpartition("/")[2] for one in audit([tmp_path], rules=[rule]).findings]
    assert found == ["both.py", "real.py"]

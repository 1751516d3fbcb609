"""docs/library.md and the help: every example runs, every table is as the code says."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from cyclopts import App
from markdown_it import MarkdownIt

from underfed.cli import COMMANDS, PASS_THROUGH
from underfed.library.tables import TABLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "library.md"
NEEDED = ("torch", "transformers", "lightning", "tensorboard", "mlflow", "wandb", "polars", "pandas")

#: What a reader of the page has: a recording, a trace, and a model with its data for each framework.
BEFORE = """
import sys
sys.path.insert(0, {tests!r})
import torch, underfed
torch.set_num_threads(1)
from pathlib import Path
from library_help import Loop
from test_callbacks import Rows, Tiny
from test_tables import trace
from transformers import TrainingArguments
import lightning
trace(Path("trace.json.gz"))
with underfed.watch(out="recording"):
    Loop(30).train()
network, dataset = Tiny(), Rows()
arguments = TrainingArguments(output_dir="out", max_steps=20, use_cpu=True, report_to=[], save_strategy="no")
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 10)
    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
module = Module()
"""


def blocks() -> list[str]:
    tokens = MarkdownIt("commonmark").parse(PAGE.read_text(encoding="utf-8"))
    return [token.content for token in tokens if token.type == "fence" and token.info == "python"]


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="underfed watches on Linux only")
@pytest.mark.skipif(any(find_spec(name) is None for name in NEEDED), reason=f"needs {', '.join(NEEDED)}")
def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    assert len(blocks()) >= 6
    source = BEFORE.format(tests=str(Path(__file__).parent)) + "\n".join(blocks()) + "\nprint('all of it')\n"
    (tmp_path / "page.py").write_text(source, encoding="utf-8")
    environment = {**os.environ, "WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/m.db"}
    if find_spec("sqlalchemy") is None:
        environment |= {"MLFLOW_TRACKING_URI": (tmp_path / "m").as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.rstrip().endswith("all of it")
    assert "A step takes" in done.stdout


def tables_page() -> str:
    """Return the tables of columns as the page holds them."""
    page = ""
    for name, columns in TABLES.items():
        page += f"\n`{name}`\n\n| column | type | unit | what it holds |\n|---|---|---|---|\n"
        page += "".join(f"| `{one.name}` | {one.type} | {one.unit} | {one.meaning} |\n" for one in columns)
    return page


def test_the_page_has_every_column() -> None:
    text = PAGE.read_text(encoding="utf-8")
    inside = text.partition("<!-- tables -->\n")[2].partition("<!-- end of tables -->")[0]
    assert inside == tables_page()


def examples(name: str) -> list[str]:
    attribute = name + "_" if name == "try" else name
    text = inspect.getdoc(getattr(import_module(f"underfed.cli.{attribute}"), attribute)) or ""
    return re.findall(r"^ {4}(underfed .+)$", text.partition("Parameters\n---")[0], re.M)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_has_examples_that_parse(name: str) -> None:
    assert examples(name)
    for example in examples(name):
        words = shlex.split(example.partition(" > ")[0])[1:]
        assert words[0] == name
        if name in PASS_THROUGH:
            at = words.index("--")
            assert words[at + 1 :]
            words = words[:at]
        app = App(name="underfed", result_action="return_value")
        attribute = name + "_" if name == "try" else name
        app.command(getattr(import_module(f"underfed.cli.{attribute}"), attribute), name=name)
        app.parse_args(words, print_error=False, exit_on_error=False)


if __name__ == "__main__":  # writes the tables anew
    now = PAGE.read_text(encoding="utf-8")
    head, _, rest = now.partition("<!-- tables -->\n")
    PAGE.write_text(
        head
        + "<!-- tables -->\n"
        + tables_page()
        + "<!-- end of tables -->"
        + rest.partition("<!-- end of tables -->")[2],
        encoding="utf-8",
    )

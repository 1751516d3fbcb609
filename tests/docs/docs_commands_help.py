"""The commands that the docs show, and a folder in which they can be run."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
#: What a line of a block or a code span begins with when it is a command.
PROGRAM = re.compile(r"(?:\$ )?((?:\.venv/bin/)?(?:underfed|make|pip|python3?|nsys) .+)")

#: Wide gaps are columns of something shown, such as a page of the live view that begins with the command's name.
_COLUMNS = re.compile(r"\S {2,}\S")
#: Commands that take a minute or need a run beside them: test_long_commands.py runs each as it is shown (`slow`). The
#: short form of each runs always: in tests/attach, tests/carry, tests/planted, tests/trial and tests/tune.
LONG = (
    "underfed attach PID",
    "underfed attach train.py",
    "underfed pull box:/durable/results results",
    "underfed run -- torchrun --nproc-per-node=2 train.py",
    "underfed try T4=8 -- python train.py",
    "underfed try threads=1 -- python train.py",
    "underfed tune --budget 300 -- python train.py",
    "underfed tune -- python train.py",
)
#: Commands that no test of this folder runs: by their first words, with the reason. All others of underfed are run.
NOT_RUN = {
    "underfed attach --gpu 0": "needs a GPU; tests/attach plays one",
    "underfed attach train.py --watch": "goes on until the run ends, on a terminal; tests/live does so",
    "underfed demo": "tests/report/test_demo.py runs it",
    "underfed read s3:": "needs an object store; tests/read reads from fsspec's own",
    "underfed run -- torchrun --nproc-per-node=8": "more ranks than CI has cores; with two of them it is run",
    "underfed try prefetch_factor=4 T12 -- torchrun": "two ranks in turns; tests/trial tries several changes at once",
    "underfed tune --budget 600 --memory 16G -- torchrun": "two ranks for ten minutes; tests/tune sets both options",
    "make": "what CI runs, or makes an environment; test_generated.py proves that the targets exist",
    "pip": "needs a package index; test_extras_exist proves the names",
    "python bench": "measures for minutes; test_scripts_exist proves the paths",
    "python tests": "writes the expected cards anew; test_scripts_exist proves the path",
    "python tools": "test_generated.py runs it",
    "python -m pytest": "runs tests",
    'python -c "import torch': "asks the torch of the reader's own machine; tests/playbook parses it",
    "python -I": "a way to start Python, named in the text",
    "nsys": "NVIDIA's",
}
#: Commands that need no argument, so that a name in the text is already a whole command.
WHOLE = {"box", "explain"}
#: Exit codes of commands that are right not to end with 0.
EXPECTED = {
    "underfed audit": {0, 1},
    "underfed compare": {0, 1, 3},
    # The loop here has no seed and steps of half a millisecond: numbers that differ, and a change that is lost in
    # noise, are right answers.
    "underfed try": {0, 1, 3},
    "underfed tune": {0, 1, 3},
}

TRAIN = """
import argparse
import torch
from torch.utils.data import DataLoader, TensorDataset

options = argparse.ArgumentParser()
options.add_argument("--lr", type=float, default=0.01)
rate = options.parse_args().lr
torch.set_num_threads(1)
data = TensorDataset(torch.randn(1600, 64), torch.randint(0, 10, (1600,)))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for x, y in DataLoader(data, batch_size=16, num_workers=0):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@dataclass(frozen=True)
class Shown:
    """One command and the pages that show it."""

    text: str
    pages: tuple[str, ...]
    in_block: bool

    @property
    def synopsis(self) -> bool:
        """Whether it stands for many commands: words to be replaced, parts that may be left out."""
        words = self.text.replace("--nproc-per-node", "")
        return bool(
            re.search(r"\[|\.\.\.|\||\b(?!RECORDING\b|README\b|T\d|X\d)[A-Z]{2,}\b|\b[AB]\b|\bX\b|\bN\b", words)
        )

    @property
    def reason(self) -> str | None:
        """Why it is not run here, or None."""
        found = [why for start, why in NOT_RUN.items() if self.text.startswith(start)]
        if found:
            return found[0]
        if self.text in LONG:
            return "test_long_commands.py runs it"
        if self.mention:
            return "a name in the text"
        return "a synopsis: its parts are parsed" if self.synopsis else None

    @property
    def mention(self) -> bool:
        """Whether prose only names it: `underfed read`, `underfed read --json`, `underfed run --`."""
        words = self.text.split()
        bare = all(word.startswith("-") for word in words[2:])
        whole = words[1] in WHOLE or (words[-1] == "--help" and words[1] != "COMMAND")
        return not self.in_block and bare and not whole


def shown() -> list[Shown]:
    """Return all commands in blocks and code spans of the pages, without comments, each once."""
    pages: dict[str, set[str]] = {}
    blocks: set[str] = set()
    for page in PAGES:
        for text, in_block in _code(page):
            line = PROGRAM.fullmatch(text.strip())
            command = _without_comment(line.group(1).removeprefix(".venv/bin/")) if line else ""
            if command and not _COLUMNS.search(command):
                pages.setdefault(command, set()).add(page.name)
                blocks |= {command} if in_block else set()
    return [Shown(text, tuple(sorted(names)), text in blocks) for text, names in pages.items()]


def _code(page: Path) -> list[tuple[str, bool]]:
    texts: list[tuple[str, bool]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"}:
            texts += [(line, True) for line in token.content.splitlines()]
        texts += [(child.content, False) for child in token.children or [] if child.type == "code_inline"]
    return texts


def _without_comment(command: str) -> str:
    return re.split(r"\s+# ", command)[0].strip()


def filled(text: str) -> list[str]:
    """Return a synopsis as words that can be parsed: placeholders filled, optional parts kept."""
    text = re.sub(r"=VALUE\b|\[=VALUE\]", "=8", text)
    text = re.sub(r"(--[\w-]+ \w+)((\|\w+)+)", r"\1", text)  # --format text|json|github
    text = re.sub(r"ray\[://\S+?\]", "ray", text)
    text = text.replace("[", " ").replace("]", " ").replace("...", " ")
    values = {
        "PID": "4321",
        "X": "29.7",
        "N": "10",
        "RULE": "T4",
        "RULE=8": "T4=8",
        "YYYY-MM": "2026-12",
        "COMMAND": "true",
    }
    words = [values.get(word, word) for word in shlex.split(text)]
    return [word.split("|")[0] if word.isupper() or "|" in word else word for word in words]


def prepare(folder: Path) -> None:
    """Put into a folder what the commands name: a script, sources, a job, a trace, those of two ranks, the docs."""
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "job.sh").write_text('"python" train.py\n', encoding="utf-8")
    for name in ("src", "notebooks", "traces"):
        (folder / name).mkdir()
    (folder / "src/model.py").write_text("import torch\n", encoding="utf-8")
    (folder / "notebooks/look.ipynb").write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4}), "utf-8")
    for name in ("trace", "traces/rank0", "traces/rank1"):
        with gzip.open(folder / f"{name}.json.gz", "wt", encoding="utf-8") as file:
            json.dump(
                {"traceEvents": _events(), "distributedInfo": {"rank": int(name[-1] == "1"), "world_size": 2}}, file
            )
    (folder / "checkpoints/one").mkdir(parents=True)
    (folder / "checkpoints/one/best_metrics.json").write_text('{"loss": 0.5}\n', encoding="utf-8")
    (folder / "checkpoints/one/best.pt").write_bytes(bytes(100))
    (folder / "durable/results").mkdir(parents=True)
    _nsight(folder / "report.sqlite")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "README.md", folder)


def _nsight(path: Path) -> None:
    """Make an export with the same ten steps as in the traces."""
    sys.path.append(str(ROOT / "tests" / "read"))
    from nsight_help import Export

    export = Export(path)
    export.card(0, "NVIDIA H100 80GB HBM3", 50, 0)
    for step in range(10):
        at = step * 10_000_000
        export.range(50, 50, at, at + 9_990_000, f"step {step}")
        export.call(50, 50, at + 1000, at + 6000, "cudaLaunchKernel", step + 1)
        export.kernel(50, at + 10_000, at + 9_010_000, "sgemm", correlation=step + 1)
    export.done()


def _events() -> list[dict[str, object]]:
    """Ten steps of 10 ms in which the GPU works for 9 ms: a launch and a kernel in each."""
    events: list[dict[str, object]] = []
    for step in range(10):
        at = step * 10_000.0
        step_mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1}
        kernel = {"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7}
        events += [
            {**step_mark, "ts": at, "dur": 9990},
            {**launch, "ts": at + 1, "dur": 5, "args": {"correlation": step + 1}},
            {**kernel, "ts": at + 10, "dur": 9000, "args": {"correlation": step + 1, "device": 0, "stream": 7}},
        ]
    return events


def words_to_run(command: str, recording: str) -> list[str]:
    """Return the words of a command with this Python's underfed, a recording that exists, and a disk of the test's."""
    command = command.replace("/durable/", f"{Path(recording).parent}/durable/")
    if " > " in command:
        return ["bash", "-c", command]
    words = [recording if word == "RECORDING" else word for word in shlex.split(command)]
    if words[0] == "underfed":
        words[:1] = [sys.executable, "-m", "underfed"]
    return words

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

pytest.register_assert_rewrite("habits_harness")
from habits_harness import PY, Room

import underfed


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


@pytest.fixture(scope="session")
def package_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, to plant faults in."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(underfed.__file__).parent, folder / "underfed", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


class Planted(Room):
    """A room whose `underfed` is a copy with a small torch and a small agent, or with a fault."""

    def __init__(self, folder: Path, package: Path) -> None:
        super().__init__(folder)
        shutil.copytree(package / "underfed", folder / "tool" / "underfed")
        tool = str(folder / "tool")
        entry = self.script(
            f"import sys; sys.path.insert(0, {tool!r})\nfrom underfed.cli import entry\nentry()\n", "entry.py"
        )
        self.tool = [PY, "-I", entry]  # the tool's own Python stays out of what a test plants on PYTHONPATH
        self.script("import sys\nloaded = True\n", "lib/torch/__init__.py")
        self.library = str(folder / "lib")

    def agent(self, text: str) -> None:
        """Replace the agent: `install(folder, options)` runs once in each process that imported torch."""
        shutil.rmtree(self.folder / "tool/underfed/observe/agent")
        self.script(text, "tool/underfed/observe/agent/__init__.py")

    def noting_agent(self) -> None:
        """An agent that leaves one line in its folder for each process it is installed in."""
        self.agent(
            "import os, sys\n"
            "def install(folder, options):\n"
            "    with open(os.path.join(folder, 'p%d.jsonl' % os.getpid()), 'a') as f:\n"
            "        f.write('%d.%d %s\\n' % (sys.version_info[:2] + (options,)))\n"
        )

    def watch(self, body: str) -> None:
        """Replace the Watch."""
        self.script("class Watch:\n" + body, "tool/underfed/observe/watch.py")


@pytest.fixture
def planted(tmp_path: Path, package_copy: Path) -> Planted:
    return Planted(tmp_path, package_copy)


@pytest.fixture
def noting(planted: Planted) -> Planted:
    """A room whose small agent notes that it was installed."""
    planted.noting_agent()
    return planted

"""Starts planted scripts, with and without underfed, on a box of two cores."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from expect import Planted

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE / "scripts"
MARK = re.compile(r"# fault((?: [A-Z]\d+)*)$")
STEPS_LINE = re.compile(r"(\d+) steps in ([\d.]+) s")

FLAT_LIMIT_S = 180
"""Ends a run that hangs; no test says anything about speed."""


def two_cores() -> None:
    """Make the process that calls it, and its children, see two cores: the planted faults are sized for them."""
    with contextlib.suppress(AttributeError, OSError):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def missing(planted: Planted) -> list[str]:
    """Return the packages that the script needs and that are not installed here."""
    return [name for name in ("torch", *planted.needs) if importlib.util.find_spec(name) is None]


@contextlib.contextmanager
def store(options: tuple[str, ...]) -> Iterator[list[str]]:
    """Run the slow store beside the job; yield the arguments that point the script to it."""
    if not options:
        yield []
        return
    server = subprocess.Popen([sys.executable, HERE / "store.py", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield ["--store", f"127.0.0.1:{int(server.stdout.readline())}"]
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def command(planted: Planted, extra: tuple[str, ...] = ()) -> list[str]:
    """Return the command as a user types it, with the interpreter of this environment."""
    words = [str(SCRIPTS / planted.script), *planted.args, *extra]
    if planted.launcher:
        program, *options = planted.launcher
        return [str(Path(sys.executable).with_name(program)), *options, *words]
    return [sys.executable, *words]


def environment() -> dict[str, str]:
    """Return our environment with what makes runs repeatable: no network, fixed hash seeds, one thread."""
    return os.environ | {
        "PYTHONHASHSEED": "0",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",  # two spinning threads on a box that others use turn 1 ms of compute into 10
    }


@dataclass(frozen=True)
class Ended:
    """How a run ended and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def step_ms(self) -> float | None:
        """The true time of a step by the script's own clock."""
        found = STEPS_LINE.search(self.err)
        return None if found is None else float(found[2]) / int(found[1]) * 1e3


def run(words: list[str], cwd: Path) -> Ended:
    """Run a command to its end in an empty folder of its own."""
    done = subprocess.run(
        words, cwd=cwd, env=environment(), capture_output=True, preexec_fn=two_cores, timeout=FLAT_LIMIT_S, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode(errors="replace"))


def bare(planted: Planted, cwd: Path, *, fixed: bool = False) -> Ended:
    """Run the script without underfed; `fixed` takes the fault out."""
    options = planted.fixed_store if fixed and planted.fixed_store else planted.store
    with store(options) as address:
        return run([*command(planted, planted.fixed if fixed else ()), *address], cwd)


def watched(planted: Planted, cwd: Path, *, out: Path, json: Path, options: tuple[str, ...] = ()) -> Ended:
    """Run the script under `underfed run`."""
    underfed = str(Path(sys.executable).with_name("underfed"))
    with store(planted.store) as address:
        words = [*command(planted), *address]
        return run([underfed, "run", "--out", str(out), "--json", str(json), *options, "--", *words], cwd)


def fault_lines(script: str, rule: str) -> set[int]:
    """Return the lines that hold the fault, as far as `rule` may point to them.

    A mark covers the whole statement, on a `def` the whole function; on `for`, `with` and the like only that line.
    """
    text = (SCRIPTS / script).read_text()
    marked = set()
    for number, line in enumerate(text.splitlines(), 1):
        found = MARK.search(line)
        if found and (not found[1] or rule in found[1].split()):
            marked.add(number)
    lines = set(marked)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.For | ast.With | ast.While | ast.If | ast.ClassDef | ast.Try):
            continue
        if not isinstance(node, ast.stmt) or node.end_lineno is None:
            continue
        span = range(node.lineno, node.end_lineno + 1)
        whole = isinstance(node, ast.FunctionDef)
        if node.lineno in marked if whole else marked.intersection(span):
            lines.update(span)
    return lines

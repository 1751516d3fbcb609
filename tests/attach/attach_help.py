"""Real runs whose truth is known by construction, and the real command that looks at them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
UNDERFED = [sys.executable, "-m", "underfed"]
ALONE = [sys.executable]
#: A Python without torch that goes on until it is ended.
PLAIN = [sys.executable, "-c", "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)"]
#: Ranks below a launcher of torch's own.
TWO_RANKS = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


class Run(subprocess.Popen[str]):
    """A program whose output goes to a file that has no name."""

    def __init__(self, words: list[str], env: dict[str, str] | None = None) -> None:
        self.file = tempfile.TemporaryFile("w+")  # closed in `end`
        super().__init__(
            words,
            stdin=subprocess.DEVNULL,
            stdout=self.file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **(env or {})},
        )

    def said(self) -> str:
        return os.pread(self.file.fileno(), 1 << 20, 0).decode()

    def end(self) -> None:
        """End it and all below it: launchers give ranks sessions of their own, and workers can outlive a parent."""
        ours = {self.pid}
        for _ in range(5):
            for name in os.listdir("/proc"):
                if name.isdecimal() and int(name) not in ours:
                    with contextlib.suppress(OSError):
                        status = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                        if int(status[1]) in ours or int(status[3]) in ours:
                            ours.add(int(name))
        for pid in ours:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.wait()
        self.file.close()


@contextlib.contextmanager
def started(words: list[str], wait: bool = True, env: dict[str, str] | None = None) -> Iterator[Run]:
    """Start a program in a session of its own, wait until it says `ready`, and leave nothing of it behind."""
    process = Run(words, env)
    try:
        while wait and "ready" not in process.said():
            assert process.poll() is None, process.said()
            time.sleep(0.05)
        yield process
    finally:
        process.end()


def script(name: str, *words: str, launcher: list[str] = ALONE) -> list[str]:
    return [*launcher, str(SCRIPTS / f"{name}.py"), *words]


@dataclass(frozen=True)
class Look:
    """What one `underfed attach` said."""

    code: int
    out: str
    err: str
    data: dict[str, Any]

    @property
    def verdict(self) -> dict[str, Any]:
        return self.data["verdict"]

    @property
    def text(self) -> str:
        return self.verdict["text"]

    @property
    def head(self) -> str:
        return self.data["live"]["headline"] or ""

    @property
    def rules(self) -> list[str]:
        return [finding["rule"] for finding in self.data["findings"]]

    def roles(self) -> list[str]:
        return sorted(each["role"] for each in self.data["live"]["processes"])


def attach(*words: object, env: dict[str, str] | None = None, prefix: list[str] | None = None) -> Look:
    """Run the command; the card and the JSON are of the same look."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seen.json"
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [*(prefix or []), *UNDERFED, "attach", "--json", str(file), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
        )
        assert "Traceback" not in done.stderr, done.stderr
        data = json.loads(file.read_text()) if file.exists() else {}
        return Look(done.returncode, done.stdout, done.stderr, data)


def look_at(name: str, *words: str, launcher: list[str] = ALONE, seconds: float = 4) -> Look:
    """Start a script, look at it, end it. Where other programs take the CPUs, look again, and skip in the end."""
    with started(script(name, *words, launcher=launcher)) as process:
        time.sleep(0.5)  # past its first step
        for _ in range(3):
            seen = attach(process.pid, "--seconds", seconds)
            assert seen.code == 0, seen.err
            assert process.poll() is None, "the run did not survive the look"
            if seen.head != "short of CPUs":
                return seen
        pytest.skip("other programs take most of this machine's CPUs, and that is then the truth")


def state(pid: int) -> str:
    """Return the letter of a process: R, S, T, Z."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def line_of(name: str, mark: str) -> str:
    """Return `file:line` of the line of a script that carries a mark."""
    lines = (SCRIPTS / f"{name}.py").read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if mark in line]
    return f"{name}.py:{number}"

"""Runs one command twice, by itself and below `underfed run`, as real processes, and compares what a user would see."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

PY = sys.executable
SCRIPT = Path(PY).parent / "underfed"
UNDERFED = [str(SCRIPT)] if SCRIPT.exists() else [PY, "-m", "underfed"]
PATIENCE_S = 120.0
_numbers = itertools.count()

#: Sixty small steps on the CPU.
LOOP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""


def environment(**extra: str) -> dict[str, str]:
    """What a login shell would give: nothing of pytest's own Python settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UNDERFED_", "PYTEST"))}
    return {**kept, **extra}


@dataclass
class Seen:
    returncode: int
    stdout: bytes
    stderr: bytes
    recording: Path | None = None

    @property
    def ours(self) -> list[str]:
        return [line for line in self.stderr.decode(errors="replace").splitlines() if line.startswith("underfed:")]


class Room:
    """A folder for one test, and the ways to start things in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tool = UNDERFED

    def script(self, text: str, name: str = "train.py", mode: int = 0o644) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def place(self) -> Path:
        return self.folder / f"recording-{next(_numbers)}"

    def prefix(self, place: Path | None = None, *options: str) -> list[str]:
        return [*self.tool, "run", "--window", "off", "--out", str(place or self.place()), *options, "--"]

    def plain(self, command: list, **how) -> Seen:
        how.setdefault("env", environment())
        how.setdefault("cwd", self.folder)
        how.setdefault("stdin", subprocess.DEVNULL if "input" not in how else None)
        if how["stdin"] is None:
            del how["stdin"]
        done = subprocess.run(command, check=False, capture_output=True, timeout=PATIENCE_S, **how)
        return Seen(done.returncode, done.stdout, done.stderr)

    def under(self, command: list, **how) -> Seen:
        place = self.place()
        seen = self.plain([*self.prefix(place), *command], **how)
        seen.recording = place
        return seen

    def both(self, command: list, **how) -> tuple[Seen, Seen]:
        """Run both ways and hold them against each other: status, stdout, and the command's own stderr inside ours."""
        plain, under = self.plain(command, **how), self.under(command, **how)
        assert under.returncode == plain.returncode, under.stderr.decode(errors="replace")
        assert under.stdout == plain.stdout
        assert plain.stderr in under.stderr
        assert b"Traceback" in plain.stderr or b"Traceback" not in under.stderr
        return plain, under

    def start(self, command: list, **how) -> subprocess.Popen:
        how.setdefault("env", environment())
        how.setdefault("cwd", self.folder)
        how.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


class Terminal:
    """A command as leader of a session on a pseudo-terminal of its own, as a login or `ssh -t` starts it."""

    def __init__(self, command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
        self.master, slave = pty.openpty()

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=env or environment(TERM="xterm"),
            preexec_fn=take_terminal,  # noqa: PLW1509 - no thread here
        )
        os.close(slave)
        self.seen = b""

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def read(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.master], [], [], left)
            if not ready:
                return
            try:
                data = os.read(self.master, 65536)
            except OSError:  # nobody holds the other end any more
                return
            if not data:
                return
            self.seen += data

    def expect(self, wanted: bytes, after: int = 0) -> int:
        """Read until `wanted` appears beyond position `after`; return the position behind it."""
        end = time.monotonic() + PATIENCE_S
        while (at := self.seen.find(wanted, after)) < 0:
            assert time.monotonic() < end, self.seen
            before = len(self.seen)
            self.read(0.5)
            if len(self.seen) == before and self.process.poll() is not None:
                raise AssertionError(f"ended without {wanted!r}: {self.seen!r}")
        return at + len(wanted)

    def status(self) -> int:
        """Wait for the end, reading on so that nobody blocks on a full terminal."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, self.seen
            self.read(0.1)
        self.read(0.1)
        return self.process.returncode

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.master >= 0:
            os.close(self.master)


def wait_for(condition, seconds: float = PATIENCE_S):
    """Return the first true value of `condition()`; fails after a long while."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return value


def process_state(pid: int) -> str:
    """Letter of /proc/PID/stat (R, S, T, Z ...), or "" where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def can(*command: str) -> bool:
    """Tell whether a helper command works here."""
    return (
        shutil.which(command[0]) is not None
        and subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
    )


def interpreters() -> list[tuple[tuple[int, int], str]]:
    """Every other Python of this machine, by version: on PATH, and those that pyenv keeps."""
    found: dict[tuple[int, int], str] = {}
    names = [shutil.which(f"python{v}") for v in ("2.7", *(f"3.{minor}" for minor in range(6, 16)))]
    kept = sorted(Path.home().glob(".pyenv/versions/*/bin/python"))
    for path in [*(name for name in names if name), *map(str, kept)]:
        asked = subprocess.run(
            [path, "-c", "import sys; print('%d %d' % sys.version_info[:2])"],
            check=False,
            capture_output=True,
            text=True,
            env=environment(),
        )
        if asked.returncode == 0:
            major, minor = asked.stdout.split()
            found.setdefault((int(major), int(minor)), path)
    return sorted(found.items())


requires_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def installations(recording: Path) -> int:
    """Number of processes in which the noting agent was installed; twice in one process would be two lines."""
    lines = [path.read_text().splitlines() for path in recording.glob("p*.jsonl")]
    assert all(len(one) == 1 for one in lines)
    return len(lines)

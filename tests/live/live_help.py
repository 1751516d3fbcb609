"""A real pseudo-terminal with a terminal emulator behind it (pyte), and the real commands on it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte

UNDERFED = [sys.executable, "-m", "underfed"]
PATIENCE_S = 120.0


def environment(**extra: str) -> dict[str, str]:
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "UNDERFED_", "PYTEST", "COLUMNS", "LINES"))
    }
    return {
        **kept,
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONIOENCODING": "utf-8",
        "TERM": "xterm-256color",
        **extra,
    }


class Emulator(pyte.Screen):
    """A screen that also notes the alternate screen, which pyte does not know."""

    alternate = False

    def set_mode(self, *modes: int, **how: bool) -> None:
        if 1049 in modes and how.get("private"):
            self.alternate = True
        super().set_mode(*modes, **how)

    def reset_mode(self, *modes: int, **how: bool) -> None:
        if 1049 in modes and how.get("private"):
            self.alternate = False
        super().reset_mode(*modes, **how)


class Terminal:
    """A command as leader of a session on a terminal of its own; `lines` is what the screen shows."""

    def __init__(
        self,
        command: list[str],
        *,
        columns: int = 80,
        rows: int = 24,
        env: dict[str, str] | None = None,
        redirect: str | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.master, slave = pty.openpty()
        self.screen = Emulator(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.size(columns, rows)
        self.modes = termios.tcgetattr(slave)
        words = command if redirect is None else ["sh", "-c", f'exec "$@" {redirect}', "sh", *command]

        def take_terminal() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env or environment(),
            cwd=cwd,
            preexec_fn=take_terminal,  # noqa: PLW1509 - no thread here
        )
        self.slave = slave  # kept open: what the command left can still be read

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if (self.screen.columns, self.screen.lines) != (columns, rows):
            self.screen.resize(rows, columns)

    def read(self, seconds: float = 0.1) -> None:
        """Take in what is there or comes within that time; a program that writes on and on does not hold us up."""
        end = time.monotonic() + seconds
        while select.select([self.master], [], [], max(0.0, end - time.monotonic()))[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self.stream.feed(data)
            if time.monotonic() > end:
                return
            end = min(end, time.monotonic() + 0.03)

    def until(self, holds: Callable[[], object], what: str = "") -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            ended = self.process.poll() is not None
            self.read()
            assert holds() or not ended, f"it ended before {what}; the screen:\n{self.text}"
            assert time.monotonic() < end, f"{what or 'it'} did not come about; the screen:\n" + "\n".join(self.lines)

    def sees(self, text: str) -> None:
        self.until(lambda: text in self.text, repr(text))

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def send(self, data: bytes) -> None:
        os.write(self.master, data)

    def end(self) -> int:
        """Wait for the command's end and read what it left."""
        self.until(lambda: self.process.poll() is not None, "the end")
        self.read(0.3)
        return self.process.returncode

    def sane(self) -> bool:
        """Whether everything is as it was before the command: modes, screen, cursor, wrapping, scrolling."""
        self.read(0.1)
        margins = self.screen.margins
        whole = margins is None or (margins.top, margins.bottom) == (0, self.screen.lines - 1)
        return (
            termios.tcgetattr(self.slave) == self.modes
            and not self.screen.alternate
            and not self.screen.cursor.hidden
            and pyte.modes.DECAWM in self.screen.mode
            and whole
        )

    def close(self) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@contextlib.contextmanager
def terminal(command: list[str], **how: object) -> Iterator[Terminal]:
    found = Terminal(command, **how)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def target(
    text: str, *words: str, env: dict[str, str] | None = None, name: str | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program that says `ready`."""
    process = subprocess.Popen(
        [*([name] if name else [sys.executable]), "-c", text, *words],
        executable=sys.executable,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=env or environment(OMP_NUM_THREADS="1"),
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


#: Waits in a `.item()`-like way of its own; needs no torch.
WAITS = """
import time
def load_batch():
    time.sleep(0.02)
print("ready", flush=True)
while True:
    load_batch()
"""


#: Steps that wait, with lines on stdout and a bar on stderr that is drawn over itself; `quiet` writes nothing.
LOOP = """
import sys, time
import torch
torch.set_num_threads(1)
quiet = "quiet" in sys.argv
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    time.sleep(0.01)
    optimizer.zero_grad()
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    if not quiet and step % 5 == 0:
        print(f"line {step}", flush=True)
    if not quiet:
        sys.stderr.write(f"\\rbar {step}")
        sys.stderr.flush()
print("\\nlast words")
"""


def live(tmp_path: Path, *command: str, how: str = "--live") -> list[str]:
    """Return the words that run a command below `run --live`."""
    return [*UNDERFED, "run", how, "--window", "off", "--out", str(tmp_path / "recording"), "--", *command]

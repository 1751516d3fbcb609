"""The far side by the system's ssh: sessions, their records, and what went wrong with them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal, NamedTuple

from underfed.carry.names import shown
from underfed.errors import UsageError

#: A link that says nothing for so long counts as dropped, in seconds.
SILENCE = 30.0
_LARGEST_FIELD = 300 << 20

Trouble = Literal["unreachable", "auth", "host key", "path", "far side", "dropped", "local"]


class FarError(Exception):
    """A session failed. `trouble` says how; those that may pass are `unreachable` and `dropped`."""

    def __init__(self, trouble: Trouble, text: str) -> None:
        super().__init__(text)
        self.trouble = trouble

    @property
    def transient(self) -> bool:
        """Say whether another try may help."""
        return self.trouble in {"unreachable", "dropped"}


@dataclass(frozen=True)
class Address:
    """A host as ssh knows it, and a path on it."""

    host: str
    path: str

    @property
    def rsync_root(self) -> str:
        """The folder in rsync's form, with a slash at its end so that it means what is inside."""
        path = self.path
        if path == "~" or path.startswith("~/"):
            path = path[2:]
        if not path.startswith("/"):
            path = f"./{path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{path.rstrip('/')}/"


def parse_address(text: str) -> Address:
    """Read HOST:PATH; an IPv6 address stands in brackets. Raises UsageError."""
    match = re.fullmatch(r"((?:[^@:/\s]+@)?\[[^\]/\s]+\]|[^:/\s]+):(.*)", text, re.DOTALL)
    if match is None:
        raise UsageError(f"pull: {shown(text)}: write HOST:PATH, with HOST as you would give it to ssh")
    host = match[1].replace("[", "").replace("]", "")
    if host.startswith("-") or not host.isprintable() or "\0" in match[2]:
        raise UsageError(f"pull: {shown(text)}: {shown(host)} is not a host name")
    return Address(host, match[2] or ".")


class Record(NamedTuple):
    """One record of a far script, see far_script."""

    kind: str
    size: int | None
    mtime_ns: int | None
    mode: int | None
    path: str
    extra: str


def ssh_words(host: str, silence: float = SILENCE) -> list[str]:
    """Return ssh and its options; everything else is left to the user's configuration."""
    interval = max(1, int(silence // 3))
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(max(1, int(silence // 2))),
        "ServerAliveInterval": str(interval),
        "ServerAliveCountMax": "3",
        "ClearAllForwardings": "yes",
        **({"Ciphers": ciphers} if (ciphers := fast_ciphers(host)) else {}),
    }
    return ["ssh", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]


@lru_cache
def fast_ciphers(host: str) -> str | None:
    """Return ssh's own list of ciphers for a host with AES-GCM first, or None where that is not for us to choose.

    Processors with AES instructions encrypt with it at twice the speed of ssh's first choice. Nothing is added to the
    list, and a list that the user or the machine has configured is left alone.
    """
    if not _has_aes():
        return None
    chosen, built_in = _ciphers("--", host), _ciphers("-F", "none", "--", host)
    if chosen != built_in or not chosen:
        return None
    fast = [name for name in chosen if name.endswith("-gcm@openssh.com")]
    return ",".join([*fast, *(name for name in chosen if name not in fast)]) if fast else None


def _has_aes() -> bool:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return re.search(r"^(?:flags|Features)\s*:.*\baes\b", text, re.MULTILINE) is not None


def _ciphers(*words: str) -> list[str]:
    """Ask ssh what it would offer."""
    try:
        done = subprocess.run(
            ["ssh", "-G", *words], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=SILENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    match = re.search(rb"^ciphers (\S+)$", done.stdout, re.MULTILINE | re.IGNORECASE)
    return match[1].decode("ascii", "replace").split(",") if match else []


class Session:
    """One ssh session that runs a script; its output is read from where the script began to speak."""

    def __init__(
        self, address: Address, make: Callable[[str], str], silence: float = SILENCE, *, listening: bool = False
    ) -> None:
        self.address, self.silence = address, silence
        nonce = f"underfed-{secrets.token_hex(12)}"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the session)
        command = [*ssh_words(address.host, silence), "-T", "--", address.host, "sh -s"]
        script = make(nonce).encode("utf-8", "surrogateescape")
        try:
            self.process = start(command, self._errors)
        except FileNotFoundError as error:
            raise FarError("local", "ssh is not installed here; install an ssh client") from error
        assert self.process.stdin and self.process.stdout  # noqa: S101 (both are pipes)
        self.out: IO[bytes] = self.process.stdout
        try:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(script)
            if not listening:
                with contextlib.suppress(BrokenPipeError):
                    self.process.stdin.close()
            self._await_start(nonce.encode() + b"\n")
        except BaseException:
            self.close()
            raise

    def _await_start(self, mark: bytes) -> None:
        deadline = time.monotonic() + self.silence
        line, noise = b"", b""
        while line != mark:
            if not self.wait(deadline - time.monotonic()):
                raise FarError("unreachable", f"{self.address.host}: took the connection and then said nothing")
            byte = self.out.read(1)
            if not byte:
                raise self.failure(started=False, noise=noise + line)
            line = byte if line.endswith(b"\n") else line + byte
            if line.endswith(b"\n") and line != mark:
                noise = (noise + line)[-300:]

    def tell(self, word: str) -> None:
        """Send a line to a script that listens."""
        assert self.process.stdin  # noqa: S101 (a pipe)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(word.encode("ascii") + b"\n")

    def wait(self, seconds: float) -> bool:
        """Wait for output; False if none comes."""
        return bool(select.select([self.out], [], [], max(0.0, seconds))[0])

    def records(self) -> Iterator[Record]:
        """Give the script's records up to its end. Raises FarError if the output stops before that."""
        fields: list[bytes] = []
        begun: list[bytes] = []
        length = 0
        while True:
            if not self.wait(self.silence):
                raise FarError("dropped", f"{self.address.host}: no sign of life for {self.silence:.0f} s")
            block = os.read(self.out.fileno(), 1 << 18)
            if not block:
                raise self.failure(started=True)
            begun.append(block)
            length += len(block)
            if length > _LARGEST_FIELD:
                raise FarError("far side", f"{self.address.host}: gives what is no answer of our script")
            if b"\0" not in block:
                continue
            *whole, rest = b"".join(begun).split(b"\0")
            begun, length = [rest], len(rest)
            fields += whole
            used = len(fields) // 6 * 6
            for at in range(0, used, 6):
                record = _record(fields[at : at + 6])
                if record.kind == "e":
                    return
                yield record
            del fields[:used]

    def failure(self, *, started: bool, noise: bytes = b"") -> FarError:
        """Say why the session ended."""
        code = self._end()
        self._errors.seek(0)
        return diagnose(self.address.host, code, self._errors.read(), started=started, noise=noise)

    def _end(self) -> int:
        try:
            return self.process.wait(timeout=self.silence)
        except subprocess.TimeoutExpired:
            stop(self.process)
            return self.process.returncode

    def kill(self) -> None:
        """End ssh: whoever reads what it says comes to the end."""
        stop(self.process)

    def close(self) -> None:
        """End the session."""
        self.kill()
        self.out.close()
        self._errors.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_NAMES = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def _record(fields: list[bytes]) -> Record:
    kind, size, mtime, mode, path, extra = fields
    name = path.decode(*_NAMES)
    name = name[2:] if name.startswith("./") else name
    return Record(kind.decode(*_NAMES), _number(size), _number(mtime), _number(mode), name, extra.decode(*_NAMES))


def _number(field: bytes) -> int | None:
    return int(field) if field.isdigit() and len(field) < 20 else None


_AUTH = re.compile(r"Permission denied \((?!13\))|Too many authentication failures|Permission denied, please try again")
_HOST_KEY = re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED|No .* host key is known")
_SETUP = re.compile(r"Bad configuration option|Bad owner or permissions|Can't open user config|no argument after")


def diagnose(host: str, code: int, errors: bytes, *, started: bool, noise: bytes = b"") -> FarError:
    """Turn ssh's exit code and messages into one of ours."""
    text = errors.decode("utf-8", "replace")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    last = shown(lines[-1])[:200] if lines else f"ssh ended with {code}"
    if _HOST_KEY.search(text):
        return FarError("host key", f"{host}: its host key is not the known one: {last}; check it, then ssh-keyscan")
    if _AUTH.search(text):
        return FarError("auth", f"{host}: refuses the login: {last}; check user and key (ssh {host} must work)")
    if _SETUP.search(text):
        return FarError("local", f"ssh cannot start: {last}")
    if started:
        return FarError("dropped", f"{host}: the link dropped: {last}")
    if code == 255:
        return FarError("unreachable", f"{host}: cannot be reached: {last}")
    said = shown(noise.decode("utf-8", "replace").strip())[:120]
    return FarError("far side", f"{host}: runs no POSIX shell for us (exit {code}): {said or last}")


def start(
    command: list[str],
    errors: IO[bytes],
    keep: tuple[int, ...] = (),
    extra_env: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a transfer program that does not outlive us, deaf to the terminal's Ctrl-C (we end it ourselves)."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        bufsize=0,
        pass_fds=keep,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C", **(extra_env or {})},
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (one system call)
    )
    _LIVE.add(process)
    return process


#: What runs now, so that an interrupt can end it.
_LIVE: set[subprocess.Popen[bytes]] = set()


def stop_all() -> None:
    """End every program that was started and runs: whoever waits for it hears that it ended."""
    for process in list(_LIVE):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a program that we started, and what it started."""
    _LIVE.discard(process)
    if process.stdin and not process.stdin.closed:
        with contextlib.suppress(OSError):
            process.stdin.close()
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def _die_with_parent() -> None:
    assert _LIBC is not None  # noqa: S101 (Linux only)
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

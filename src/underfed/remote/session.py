"""The ssh side of a look at another machine: one session, one answer, and what can go wrong with it."""

from __future__ import annotations

import json
import os
import secrets
import select
import shlex
import subprocess
import tempfile
import time
from typing import Any, NoReturn

from underfed.carry.far import FarError, diagnose, ssh_words, start, stop
from underfed.errors import MeasurementError, UsageError
from underfed.remote.parcel import parcel, sampler_for
from underfed.report.text import clean

#: A link that says nothing for so long, in s, where something was to be said.
SILENCE = 30.0
#: More than any answer of ours.
_MOST_BYTES = 512 << 20
#: Makes a folder, takes the parcel from stdin into it, runs it and removes the folder, however it ends. Understood by
#: every Python, so that an old one can say that it is one.
_LAUNCH = """import sys
if sys.version_info < (3, 9):
    sys.stdout.write("@MARK@ old %d.%d\\n" % sys.version_info[:2])
    sys.exit(0)
import os, platform, shutil, signal, tempfile
def leave(*_):
    raise SystemExit(1)
for name in ("SIGHUP", "SIGTERM", "SIGINT"):
    signal.signal(getattr(signal, name), leave)
folder = tempfile.mkdtemp(prefix="underfed-")
try:
    known = 1 if shutil.which("py-spy") else 0
    sys.stdout.write("@MARK@ ready %d %s %s\\n" % (known, platform.system(), platform.machine()))
    sys.stdout.flush()
    source = sys.stdin.buffer
    path = os.path.join(folder, "parcel.zip")
    with open(path, "wb") as file:
        file.write(source.read(int(source.readline())))
    sys.dont_write_bytecode = True
    sys.path.insert(0, path)
    from underfed.remote import there
    there.main(folder, "@MARK@")
finally:
    shutil.rmtree(folder, ignore_errors=True)
"""


def check_host(host: str) -> str:
    """Return a host as ssh takes it. Raises UsageError for what ssh would read as an option, or cannot be one."""
    if not host or host.startswith("-") or any(ord(char) < 33 or char in "'\"\\$`;&|<>()" for char in host):
        raise UsageError(f"--host {clean(host)!r}: give a host as you would give it to ssh")
    return host


def ask(host: str, request: dict[str, Any], seconds: float = 0.0) -> dict[str, Any]:
    """Run a request on another machine and return its answer; `seconds` is how long it looks.

    Ctrl-C ends the look there early and brings back what was seen until then. Raises UsageError where the machine
    cannot be reached or used, and MeasurementError where the link dropped or the answer is none.
    """
    mark = f"underfed-{secrets.token_hex(12)}"
    launch = _LAUNCH.replace("@MARK@", mark)
    command = [*ssh_words(host, SILENCE), "-T", "--", host, f"exec python3 -c {shlex.quote(launch)}"]
    with tempfile.TemporaryFile() as errors:
        try:
            process = start(command, errors)
        except FileNotFoundError as error:
            raise UsageError("--host: ssh is not installed here; install an ssh client") from error
        try:
            answer = _talk(_Line(process, errors, host, mark), request, seconds)
        finally:
            stop(process)
            assert process.stdout is not None  # noqa: S101 (a pipe)
            process.stdout.close()
    if "error" in answer:
        text = f"{host}: {clean(str(answer['error']))}"
        raise (MeasurementError if answer.get("code") == MeasurementError.exit_code else UsageError)(text)
    return answer


class _Line:
    """The two pipes of a session; what comes in is read up to and behind the mark."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Any, host: str, mark: str) -> None:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101 (both are pipes)
        self.process, self.host, self.mark = process, host, mark.encode()
        self._in, self._out, self._errors = process.stdin, process.stdout, errors
        self._buffer = bytearray()
        self._started = False

    def send(self, content: bytes) -> None:
        """Send a length and so many bytes. A far side that is gone is found when it is read from."""
        view = memoryview(f"{len(content)}\n".encode() + content)
        try:
            while view:
                view = view[self._in.write(view) :]
        except BrokenPipeError:
            return

    def end(self) -> None:
        """Tell the far side to end its look."""
        self._in.close()

    def words(self, deadline: float) -> list[str]:
        """Return what follows the next mark on its line, as words; what comes before it is noise of a login shell."""
        while True:
            at = self._buffer.find(self.mark + b" ")
            end = self._buffer.find(b"\n", at) if at >= 0 else -1
            if end >= 0:
                line = bytes(self._buffer[at + len(self.mark) : end])
                del self._buffer[: end + 1]
                self._started = True
                return line.decode("utf-8", "replace").split()
            self._more(deadline)

    def bytes(self, count: int, deadline: float) -> bytes:
        """Return so many bytes."""
        while len(self._buffer) < count:
            self._more(deadline)
        return bytes(self._buffer[:count])

    def _more(self, deadline: float) -> None:
        if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise MeasurementError(f"{self.host}: took the connection and then said nothing for too long")
        block = os.read(self._out.fileno(), 1 << 18)
        if not block:
            self._ended()
        self._buffer += block
        if len(self._buffer) > _MOST_BYTES:
            raise MeasurementError(f"{self.host}: gives what is no answer of ours")

    def _ended(self) -> NoReturn:
        try:
            code = self.process.wait(SILENCE)
        except subprocess.TimeoutExpired:
            code = -1
        self._errors.seek(0)
        said = self._errors.read()
        if code == 127 or b"python3: not found" in said or b"python3: command not found" in said:
            raise UsageError(f"{self.host}: has no python3 on its PATH for ssh; the look needs one (3.9 or newer)")
        error: FarError = diagnose(self.host, code, said, started=self._started, noise=bytes(self._buffer[-300:]))
        if code not in {255, -1} and error.trouble == "dropped":
            last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise MeasurementError(f"{self.host}: the look failed there: {clean(last[0])[:200] if last else code}")
        raise (MeasurementError if error.trouble == "dropped" else UsageError)(str(error))


def _talk(line: _Line, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    ready = line.words(time.monotonic() + SILENCE)
    if ready[:1] == ["old"]:
        raise UsageError(f"{line.host}: its python3 is {clean(' '.join(ready[1:]))}; the look needs 3.9 or newer")
    if len(ready) != 4 or ready[0] != "ready":
        raise MeasurementError(f"{line.host}: gives what is no answer of ours")
    line.send(parcel())
    line.send(json.dumps(request).encode())
    wanted = request["what"] == "attach" and ready[1] == "0"
    line.send((sampler_for(" ".join(ready[2:])) or b"") if wanted else b"")
    deadline = time.monotonic() + seconds + 2 * SILENCE
    try:
        count = line.words(deadline)
    except KeyboardInterrupt:
        line.end()
        count = line.words(time.monotonic() + SILENCE)
    if len(count) != 1 or not count[0].isdigit() or int(count[0]) > _MOST_BYTES:
        raise MeasurementError(f"{line.host}: gives what is no answer of ours")
    try:
        answer = json.loads(line.bytes(int(count[0]), time.monotonic() + 2 * SILENCE))
    except ValueError as error:
        raise MeasurementError(f"{line.host}: gives what is no answer of ours") from error
    if not isinstance(answer, dict):
        raise MeasurementError(f"{line.host}: gives what is no answer of ours")
    return answer

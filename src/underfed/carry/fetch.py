"""Bytes from the far side into the staging folder: by rsync, or by tar where the far side has none."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from underfed.carry.copying import any_set, write_all
from underfed.carry.far import Address, FarError, Session, diagnose, ssh_words, start, stop
from underfed.carry.far_script import tar_script
from underfed.carry.folders import make_folders
from underfed.carry.hashing import CHUNK
from underfed.carry.names import shown
from underfed.carry.preflight import PERMANENT

Arrived = Callable[[str], None]
Failed = Callable[[str, str], None]
Progress = Callable[[int], None]

_FULL = re.compile(r"No space left on device|Disk quota exceeded|\(28\)|\(122\)")
_NO_RSYNC = re.compile(
    r"rsync: (?:command )?not found|rsync: No such file|not found: rsync|unknown command.*rsync", re.I
)
#: rsync's exit codes for a part that did not come: 23 some files, 24 vanished files. The proof tells which.
_PARTIAL = frozenset({23, 24})
_BROKEN = frozenset({10, 12, 20, 30, 35, 255})
_ARGUMENTS = 60_000  # bytes of names in one tar command; POSIX promises little, every system has more
_OCTAL = re.compile(rb"\\#([0-7]{3})")


class NoRsyncError(Exception):
    """The far side has no rsync."""


@lru_cache(maxsize=1)
def local_rsync() -> tuple[int, int] | None:
    """Return the version of the rsync here, or None if there is none that does what is needed (3.1 or newer)."""
    if not shutil.which("rsync"):
        return None
    done = subprocess.run(["rsync", "--version"], capture_output=True, text=True, check=False, errors="replace")
    match = re.search(r"rsync\s+version v?(\d+)\.(\d+)", done.stdout)
    if match is None or "openrsync" in done.stdout:
        return None
    version = int(match[1]), int(match[2])
    return version if version >= (3, 1) else None


def by_rsync(
    address: Address,
    names: list[str],
    staging: Path,
    lock: int,
    *,
    large: bool,
    holes: bool,
    compress: bool,
    silence: float,
    arrived: Arrived,
    progress: Progress,
) -> None:
    """Fetch files by rsync; what is there of them already is gone on with in place.

    With `holes` zeros become holes, for which rsync writes in pieces of 1 kB.

    `arrived` hears each name when its file is complete, `progress` the bytes so far, while a file comes only if files
    are `large`: rsync tells of every small one as well, which takes it as long as to carry it.

    Raises FarError, NoRsyncError.
    """
    words = [
        *("rsync", "-8", "-s", "-I", "-t", "--partial", "--inplace", "--no-implied-dirs", "--chmod=u+rw"),
        *("--files-from=-", "--from0", "--out-format=>%b %n", f"--timeout={max(1, int(silence))}"),
        *(("--info=progress2",) if large else ()),
        *(("-z",) if compress else ()),
        *(("-S",) if holes else ()),
        *("-e", " ".join(ssh_words(address.host, silence)), "--", address.rsync_root, f"{staging}/"),
    ]
    with tempfile.TemporaryFile() as errors:
        process = start(words, errors, keep=(lock,))
        try:
            feeder = threading.Thread(target=_feed, args=(process, names), daemon=True)
            feeder.start()
            _listen(process, arrived, progress)
            code = process.wait()
        finally:
            stop(process)
            feeder.join()
            assert process.stdout  # noqa: S101 (a pipe)
            process.stdout.close()
        errors.seek(0)
        _judge(address, code, errors.read())


def _feed(process: subprocess.Popen[bytes], names: list[str]) -> None:
    assert process.stdin  # noqa: S101 (a pipe)
    data = memoryview(b"".join(b"./" + os.fsencode(name) + b"\0" for name in names))
    with contextlib.suppress(OSError, ValueError), process.stdin as pipe:
        while data:
            data = data[pipe.write(data) :]


def _listen(process: subprocess.Popen[bytes], arrived: Arrived, progress: Progress) -> None:
    assert process.stdout  # noqa: S101 (a pipe)
    rest = b""
    while block := process.stdout.read(1 << 16):
        *lines, rest = re.split(rb"[\r\n]", rest + block)
        for line in lines:
            if line.startswith(b">"):
                raw = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line.partition(b" ")[2])
                arrived(os.fsdecode(raw.removeprefix(b"./")))
            elif match := re.match(rb"\s*([\d,.]+)\s+\d+%", line):
                progress(int(re.sub(rb"[,.]", b"", match[1])))


def _judge(address: Address, code: int, errors: bytes) -> None:
    text = errors.decode("utf-8", "replace")
    if code == 0:
        return
    if _FULL.search(text):
        raise FarError("local", "the destination is full (bytes, inodes or quota): see df -h, df -i, quota")
    if _NO_RSYNC.search(text) or code == 127:
        raise NoRsyncError
    if code in _PARTIAL:
        return
    if code < 0 or code in _BROKEN:
        raise diagnose(address.host, code, errors, started=True)
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    raise FarError("far side", f"{address.host}: rsync ended with {code}: {shown(lines[0])[:200] if lines else ''}")


def by_tar(
    address: Address,
    names: list[str],
    staging: Path,
    *,
    silence: float,
    arrived: Arrived,
    failed: Failed,
    progress: Progress,
) -> None:
    """Fetch files as tar streams; one that was cut begins anew, those before it are kept. Raises FarError.

    `failed` hears the name of a file that cannot be written here, and why.
    """
    so_far = 0
    for batch in _batches(names):
        wanted = set(batch)
        with Session(address, lambda nonce, b=batch: tar_script(address.path, nonce, b), silence) as session:  # type: ignore[misc]
            stream = _Watched(session)
            try:
                with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 18) as archive:  # type: ignore[call-overload]
                    for member in archive:
                        name = member.name.removeprefix("./")
                        if not member.isreg() or name not in wanted:
                            continue
                        source = archive.extractfile(member)
                        assert source is not None  # noqa: S101 (a regular file)
                        try:
                            for count in _unpack(source, staging, name, member):
                                so_far += count
                                progress(so_far)
                            arrived(name)
                        except OSError as error:
                            if error.errno in PERMANENT:
                                why = f"the destination is full or read-only: {shown(name)}: {error.strerror}"
                                raise FarError("local", why) from error
                            failed(name, str(error.strerror))
                        wanted.discard(name)
            except (tarfile.TarError, EOFError, ValueError) as error:
                if wanted:  # else all have come whole, and only the stream's end is missing
                    raise session.failure(started=True) from error


def _unpack(source, staging: Path, name: str, member: tarfile.TarInfo):  # type: ignore[no-untyped-def]
    target = staging / name
    make_folders(staging, name.rpartition("/")[0])
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        length = 0
        while block := source.read(CHUNK):
            view = memoryview(block)
            if any_set(view):
                write_all(fd, view)
            else:
                os.lseek(fd, len(block), os.SEEK_CUR)
            length += len(block)
            yield len(block)
        if length != member.size:
            raise tarfile.ReadError("cut short")
        os.ftruncate(fd, length)
        os.utime(fd, (member.mtime, member.mtime))
    finally:
        os.close(fd)


class _Watched:
    """A session's output as tarfile reads it; silence is an error, an end is told apart from a cut."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(self, count: int) -> bytes:
        if not self._session.wait(self._session.silence):
            raise FarError("dropped", f"no byte came for {self._session.silence:.0f} s")
        return os.read(self._session.out.fileno(), count)


def _batches(names: list[str]) -> list[list[str]]:
    batches: list[list[str]] = []
    room = 0
    for name in names:
        need = len(os.fsencode(name)) + 16
        if need > room:
            batches.append([])
            room = _ARGUMENTS
        batches[-1].append(name)
        room -= need
    return batches

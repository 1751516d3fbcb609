"""Whether the destination can hold what is to come: counted, then tried, because counts lie on quota and Lustre."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from underfed.carry.direct import allocate
from underfed.carry.folders import make_folders
from underfed.carry.names import PROBE, plural, shown, size_text
from underfed.carry.reserve import FOLDER, LOCKED, USUAL, Reserve, clear
from underfed.errors import UsageError

#: Errors after which nothing more can be written: no retry helps.
PERMANENT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True)
class Space:
    """What a file system says is left for us, in bytes and files; None where it does not count."""

    free_bytes: int
    free_files: int | None
    total_bytes: int
    total_files: int | None

    def text(self) -> str:
        """Return one line on bytes and inodes."""
        inodes = "inodes are not counted there"
        if self.free_files is not None and self.total_files:
            inodes = f"{self.free_files:,} of {self.total_files:,} inodes free"
        return f"{size_text(self.free_bytes)} of {size_text(self.total_bytes)} free, {inodes}"


def space_at(folder: Path) -> Space:
    """Ask the file system under a folder."""
    state = os.statvfs(folder)
    counted = state.f_files > 0
    return Space(
        state.f_bavail * state.f_frsize,
        state.f_favail if counted else None,
        state.f_blocks * state.f_frsize,
        state.f_files if counted else None,
    )


class NoRoomError(UsageError):
    """The destination cannot hold what is to be written."""


def check_room(
    folder: Path, sizes: Sequence[int], folders: int, counted_bytes: int, kept: tuple[Path, Sequence[str]] | None = None
) -> Reserve | None:
    """Raise NoRoomError unless files of these sizes, in bytes, and so many new folders fit below `folder`.

    First what statvfs and quotactl say, then a write probe: as many files as planned are made, and the bytes planned
    are allocated and given back. `counted_bytes` is what the files take on a disk that keeps holes. `kept` names a
    folder in `folder` and files below it, which are made as part of the trial and stay there, empty, to be filled.

    Returns the files of `sizes`, empty, to be copied into; what is for folders is given back.
    """
    base, names = kept or (folder, ())
    files = len(sizes) + folders + len(names)
    if files == 0:
        return None
    _count(folder, files, counted_bytes)
    return _probe(folder, len(sizes), folders, counted_bytes, base, names)


def _count(folder: Path, files: int, counted_bytes: int) -> None:
    where = shown(folder)
    space = space_at(folder)
    if counted_bytes > space.free_bytes:
        raise NoRoomError(
            f"{where}: {size_text(counted_bytes)} are needed and {size_text(space.free_bytes)} are free; "
            "nothing was copied; free space or name another destination"
        )
    if space.free_files is not None and files > space.free_files:
        raise NoRoomError(
            f"{where}: {plural(files, 'inode')} are needed and {space.free_files:,} are free (see df -i); "
            "nothing was copied; remove small files or name another destination"
        )
    quota = quota_left(folder)
    if quota is not None and (counted_bytes > quota[0] or files > quota[1]):
        raise NoRoomError(
            f"{where}: your quota leaves {size_text(quota[0])} and {plural(quota[1], 'file')}, "
            f"{size_text(counted_bytes)} in {plural(files, 'file')} are needed; nothing was copied"
        )


def _probe(  # noqa: PLR0917 (recursive, once)
    folder: Path, files: int, folders: int, total: int, base: Path, names: Sequence[str], *, again: bool = True
) -> Reserve:
    probe, lock = None, -1
    made: list[str] = []
    try:
        probe = Path(tempfile.mkdtemp(prefix=f"{PROBE}-", dir=folder))
        lock = os.open(probe / LOCKED, os.O_CREAT | os.O_RDWR | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: nothing clears what a kill leaves
            fcntl.flock(lock, fcntl.LOCK_SH)
        _allocate(lock, total)
        kept = [f"{probe}/{number}" for number in range(1, files + 1)]
        back = [f"{probe}/{FOLDER}{number}" for number in range(folders)]
        mode = 0
        for path in (*kept, *back):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_CLOEXEC, USUAL)
            mode = mode or os.fstat(fd).st_mode & 0o777
            os.close(fd)
        _make_empty(base, names, made)
        for path in back:
            os.unlink(path)  # noqa: PTH108 (thousands of them)
        os.ftruncate(lock, 0)
        return Reserve(probe, lock, kept, mode)
    except BaseException as error:
        for left in made:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)  # noqa: PTH108 (thousands of them)
        if probe is not None:
            clear(probe)
        if lock >= 0:
            os.close(lock)
        if not isinstance(error, OSError):
            raise
        if isinstance(error, FileNotFoundError) and again and folder.is_dir():
            return _probe(folder, files, folders, total, base, names, again=False)
        count = plural(files + folders + len(names), "file")
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            kind = "quota" if error.errno == errno.EDQUOT else "space or inodes"
            raise NoRoomError(
                f"{shown(folder)}: a trial of {size_text(total)} in {count} ran out of {kind}, "
                "although the file system says there is enough; nothing was copied"
            ) from error
        raise NoRoomError(f"{shown(folder)}: cannot be written: {error.strerror}; nothing was copied") from error


def _make_empty(base: Path, names: Sequence[str], made: list[str]) -> None:
    """Make files to be filled; a name that cannot be is left to the transfer, which says so of that file alone."""
    folders: set[str] = set()
    for name in names:
        try:
            folder = name.rpartition("/")[0]
            if folder not in folders:
                make_folders(base, folder)
                folders.add(folder)
            os.close(os.open(f"{base}/{name}", os.O_CREAT | os.O_WRONLY | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            made.append(f"{base}/{name}")
        except OSError as error:  # noqa: PERF203 (each file fails by itself)
            if error.errno in PERMANENT:
                raise


def clear_left_probes(folder: Path) -> None:
    """Remove the probes of processes that were killed: empty ones, and those whose first file nobody has locked.

    One that is being made at this very moment may be taken for such; its maker then makes another.
    """
    for left in folder.glob(f"{PROBE}-*"):
        if left.is_symlink():
            continue  # not ours, and what it leads to even less
        with contextlib.suppress(OSError):
            left.rmdir()
            continue
        try:
            fd = os.open(left / LOCKED, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            clear(left)
            continue
        except OSError:
            continue
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            clear(left)
        os.close(fd)


def _allocate(fd: int, total: int) -> None:
    """Reserve bytes for real; where the file system cannot reserve, write them up to 256 MB and let copying show."""
    if total == 0 or allocate(fd, total):
        return
    zeros = os.urandom(1 << 20)  # a compressing file system would keep zeros for nothing
    for _ in range(min(total, 256 << 20) >> 20):
        os.write(fd, zeros)
    os.fsync(fd)


_Q_GETQUOTA = 0x800007
_QIF_BLIMITS, _QIF_ILIMITS = 1, 4


def quota_left(folder: Path) -> tuple[int, int] | None:
    """Return bytes and files that the user's and the group's quota leave, or None where there is no quota.

    Only quotas that the kernel keeps for a local disk are seen; those of a server or a project show in the write probe.
    """
    if sys.platform != "linux":
        return None
    device = _device_of(folder)
    if device is None:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    left: tuple[int, int] | None = None
    for kind, owner in ((0, os.geteuid()), (1, os.getegid())):
        if owner == 0:
            continue  # the superuser's writes are not held to a quota
        buffer = ctypes.create_string_buffer(72)
        command = ctypes.c_int((_Q_GETQUOTA << 8) | kind)  # wraps into the C int that it is
        if libc.quotactl(command, os.fsencode(device), ctypes.c_int(owner), buffer) != 0:
            continue
        hard, _soft, used, most, _soft_files, count, _bt, _it, valid = struct.unpack("=8QI", buffer.raw[:68])
        room = hard * 1024 - used if hard and valid & _QIF_BLIMITS else sys.maxsize
        files = most - count if most and valid & _QIF_ILIMITS else sys.maxsize
        both = (max(0, room), max(0, files))
        left = both if left is None else (min(left[0], both[0]), min(left[1], both[1]))
    return None if left == (sys.maxsize, sys.maxsize) else left


def _device_of(folder: Path) -> str | None:
    number = folder.stat().st_dev
    wanted = f"{os.major(number)}:{os.minor(number)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            head, _, tail = line.partition(" - ")
            if head.split()[2] == wanted and tail.split()[1].startswith("/"):
                return tail.split()[1]
    return None

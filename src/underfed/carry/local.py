"""A store on a local path or mount: temporary name, fsync, rename, read back."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from underfed.carry.folders import make_folders, sync_folder
from underfed.carry.hashing import blocks, forget, hash_file, new_hasher
from underfed.carry.manifest import LARGEST, BrokenManifestError, Manifest, decode
from underfed.carry.names import INCOMING, MANIFEST, REPLACED, WITHDRAWN, shown
from underfed.carry.preflight import PERMANENT, check_room, clear_left_probes, space_at
from underfed.carry.store import BusyError, CarryError, Held, RunPlace, Store
from underfed.carry.take import Source
from underfed.errors import UsageError

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})
_TRANSIENT = frozenset(
    {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.ENOTCONN, errno.ECONNRESET, errno.EHOSTDOWN}
)


class LocalStore(Store):
    """Runs below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    def prepare(self) -> None:
        """Make the folder."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{shown(self.folder)}: cannot be made: {error.strerror}; name another DST") from error
        if not os.access(self.folder, os.W_OK | os.X_OK) or os.statvfs(self.folder).f_flag & os.ST_RDONLY:
            raise UsageError(f"{shown(self.folder)}: cannot be written; nothing was copied; name another DST")
        clear_left_probes(self.folder)

    def check_room(self, sizes: Sequence[int], folders: int, counted_bytes: int) -> None:
        """Count, then try."""
        check_room(self.folder, sizes, folders, counted_bytes)

    def space_text(self) -> str:
        """Return bytes and inodes left."""
        return space_at(self.folder).text()

    @contextlib.contextmanager
    def run(self, path: str, *, write: bool) -> Iterator[RunPlace]:
        """Open a run's folder."""
        folder = self.folder / path
        if not write:
            yield LocalRun(self.folder, path)
            return
        try:
            make_folders(self.folder, path)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise as_carry_error(path, error) from error
        try:
            locked = take_lock(lock, folder)
            place = LocalRun(self.folder, path)
            if locked:
                shutil.rmtree(place.incoming, ignore_errors=True)
            try:
                yield place
            finally:
                shutil.rmtree(place.incoming, ignore_errors=True)
        finally:
            os.close(lock)


class LocalRun(RunPlace):
    """One run's folder below a local store."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path = root, path
        self.folder = root / path
        self.incoming = self.folder / INCOMING
        self._touched: set[Path] = set()
        self._count = 0
        self._lock = threading.Lock()

    def manifest(self) -> tuple[Manifest | None, str | None]:
        """Read the manifest."""
        return read_manifest(self.folder / MANIFEST)

    def withdrawn(self) -> Manifest | None:
        """Read the withdrawn manifest."""
        return read_manifest(self.folder / WITHDRAWN)[0]

    def held(self, path: str) -> Held | None:
        """Look at a path without following links anywhere below the store."""
        try:
            state = (self.folder / path).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise as_carry_error(path, error) from error
        if not stat.S_ISREG(state.st_mode):
            raise CarryError(f"{shown(path)}: the destination has something there that is not a file; move it away")
        return Held(state.st_size, state.st_mtime_ns)

    def digest(self, path: str) -> str:
        """Hash the copy from the disk."""
        try:
            return hash_file(self.folder / path, fresh=True)[0]
        except OSError as error:
            raise as_carry_error(path, error) from error

    def carry(self, source: Source) -> str:
        """Copy, fsync, rename, read back; once more if the read-back differs."""
        final = self.folder / source.path
        for attempt in (1, 2):
            try:
                temporary = self._temporary()
            except OSError as error:
                raise as_carry_error(source.path, error) from error
            try:
                digest = copy_file(source, temporary)
                with self._lock:
                    self._touched |= make_folders(self.folder, source.path.rpartition("/")[0])
                    self._touched.add(final.parent)
                temporary.rename(final)
                back, length = hash_file(final, fresh=True)
            except OSError as error:
                raise as_carry_error(source.path, error) from error
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
            if back == digest and length == source.size:
                return digest
            if attempt == 2:
                final.unlink(missing_ok=True)
        raise CarryError(f"{shown(source.path)}: copied twice, and both times other bytes were read back")

    def _temporary(self) -> Path:
        with self._lock:
            self.incoming.mkdir(exist_ok=True)
            self._count += 1
            return self.incoming / f"{os.getpid()}-{self._count}"

    def settle(self, source: Source) -> None:
        """Set the copy's time."""
        final = self.folder / source.path
        with contextlib.suppress(OSError):
            if final.lstat().st_mtime_ns != source.mtime_ns:
                os.utime(final, ns=(source.mtime_ns, source.mtime_ns), follow_symlinks=False)
        self._touched.add(final.parent)

    def withdraw(self) -> None:
        """Rename the manifest away."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / MANIFEST).rename(self.folder / WITHDRAWN)
            sync_folder(self.folder)

    def set_aside(self, path: str) -> str:
        """Move a file below `.replaced/` beside the run (inside the store where the run is the store itself)."""
        beside = "" if self.path == "." else f"{self.path}/"
        parent = beside.rstrip("/").rpartition("/")[0]
        inner = f"{REPLACED}/{beside[len(parent) :].lstrip('/')}{path}"
        base = self.root / parent
        try:
            made = make_folders(base, inner.rpartition("/")[0])
            target = base / inner
            number = 0
            while os.path.lexists(target):
                number += 1
                target = base / f"{inner}.{number}"
            (self.folder / path).rename(target)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise as_carry_error(path, error) from error
        self._touched |= made | {target.parent, (self.folder / path).parent}
        with contextlib.suppress(OSError):
            (self.folder / path).parent.rmdir()
        return target.relative_to(self.root).as_posix()

    def finish(self, manifest: Manifest) -> None:
        """Sync folders, write the manifest, drop the withdrawn one."""
        try:
            for folder in sorted(self._touched):
                if folder.is_dir():
                    sync_folder(folder)
            data = manifest.encode()
            if not _same_bytes(self.folder / MANIFEST, data):
                write_durably(self.folder / MANIFEST, data, self._temporary())
            if (self.folder / WITHDRAWN).exists():
                (self.folder / WITHDRAWN).unlink(missing_ok=True)
                sync_folder(self.folder)
        except OSError as error:
            raise as_carry_error(MANIFEST, error) from error


def copy_file(source: Source, temporary: Path) -> str:
    """Copy a file to a new name, with its mode and time, on the disk when this returns; return the source's BLAKE3.

    Holes stay holes. Raises CarryError if the file is not what was listed or changes on the way, OSError otherwise.
    """
    fd = os.open(source.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        check_unchanged(source, os.fstat(fd))
        out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            hasher = new_hasher("blake3", source.size)
            length = 0
            sparse = source.allocated < source.size
            for block in blocks(fd, source.size):
                hasher.update(block)
                if sparse and not any_set(block):
                    os.lseek(out, len(block), os.SEEK_CUR)
                else:
                    write_all(out, block)
                length += len(block)
            check_unchanged(source, os.fstat(fd))
            if length != source.size:
                raise CarryError(f"{shown(source.path)}: still growing", changed=True)
            if sparse:
                os.ftruncate(out, length)
            with contextlib.suppress(OSError):
                os.fchmod(out, stat.S_IMODE(source.mode) & 0o777)
            with contextlib.suppress(OSError):
                os.utime(out, ns=(source.mtime_ns, source.mtime_ns))
            os.fsync(out)
            forget(out)
            return hasher.hexdigest()
        finally:
            os.close(out)
    finally:
        os.close(fd)


def check_unchanged(source: Source, state: os.stat_result) -> None:
    """Raise CarryError unless a file looks as it did when it was listed."""
    if (state.st_dev, state.st_ino) != source.identity or state.st_mtime_ns != source.mtime_ns:
        raise CarryError(f"{shown(source.path)}: changed while it was copied", changed=True)
    if state.st_size != source.size:
        raise CarryError(f"{shown(source.path)}: still growing", changed=True)


_ZEROS = bytes(4 << 20)


def any_set(block: memoryview) -> bool:
    """Say whether a block of up to 4 MiB has a byte other than zero."""
    return bytes(block) != _ZEROS[: len(block)]


def write_all(fd: int, block: memoryview) -> None:
    """Write a whole block."""
    while block:
        block = block[os.write(fd, block) :]


def write_durably(path: Path, data: bytes, temporary: Path) -> None:
    """Write a small file so that it is there whole or not at all."""
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(fd, memoryview(data))
        os.fsync(fd)
    finally:
        os.close(fd)
    temporary.rename(path)
    sync_folder(path.parent)
    if not _same_bytes(path, data):
        raise OSError(errno.EIO, "other bytes were read back than were written")


def read_manifest(path: Path) -> tuple[Manifest | None, str | None]:
    """Read a manifest file; None with the reason if it cannot be used, None and None if there is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, error.strerror
    with open(fd, "rb") as file:  # noqa: PTH123 (already open)
        try:
            if os.fstat(fd).st_size > LARGEST:
                return None, "it is larger than any manifest"
            return decode(file.read(LARGEST + 1)), None
        except BrokenManifestError as error:
            return None, str(error)
        except OSError as error:
            return None, error.strerror


def take_lock(fd: int, folder: Path) -> bool:
    """Lock an open folder until it is closed; False where the file system has no locks. Raises BusyError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BusyError(f"{shown(folder)}: another underfed is writing there; wait for it to end") from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def as_carry_error(path: str, error: OSError) -> CarryError:
    """Return an OSError as one of ours, with a hint for the ones that have one."""
    hint = ""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        hint = " (bytes, inodes or quota: see df -h, df -i, quota)"
    return CarryError(
        f"{shown(path)}: {error.strerror}{hint}",
        permanent=error.errno in PERMANENT,
        transient=error.errno in _TRANSIENT,
    )


def _same_bytes(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False

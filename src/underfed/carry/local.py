"""A store on a local path or mount: temporary name, fsync, rename, read back."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from underfed.carry.copies import Copies, as_carry_error
from underfed.carry.copying import same_bytes, write_durably
from underfed.carry.folders import make_folders, sync_folder
from underfed.carry.hashing import hash_file
from underfed.carry.manifest import LARGEST, BrokenManifestError, Manifest, decode
from underfed.carry.names import INCOMING, MANIFEST, REPLACED, WITHDRAWN, shown
from underfed.carry.preflight import check_room, clear_left_probes, space_at
from underfed.carry.reserve import Reserve
from underfed.carry.store import BusyError, CarryError, Held, RunPlace, Store
from underfed.carry.take import Source
from underfed.errors import UsageError

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})
_LOCK_PATIENCE = 3.0


class LocalStore(Store):
    """Runs below a folder."""

    shared = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)
        self._reserve: Reserve | None = None

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
        """Count, then try; the files made in the trial are those that are copied into."""
        self._reserve = check_room(self.folder, sizes, folders, counted_bytes)

    def release(self) -> None:
        """Remove what was made for copies that did not come."""
        if self._reserve:
            self._reserve.release()
        self._reserve = None

    def keep_share(self, process: int, of: int) -> None:
        """Take temporary names that the other processes do not take."""
        if self._reserve:
            self._reserve.keep_share(process, of)

    def space_text(self) -> str:
        """Return bytes and inodes left, or why they are not known: a mount may have gone away."""
        try:
            return space_at(self.folder).text()
        except OSError as error:
            return f"the room there is not known: {error.strerror}"

    @contextlib.contextmanager
    def run(self, path: str, *, write: bool) -> Iterator[RunPlace]:
        """Open a run's folder."""
        folder = self.folder / path
        if not write:
            yield LocalRun(self.folder, path)
            return
        try:
            make_folders(self.folder, path)
            # As a string: the run `.` of a DST that is a link is what the link leads to.
            lock = os.open(f"{self.folder}/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise as_carry_error(path, error) from error
        try:
            locked = take_lock(lock, folder, _LOCK_PATIENCE)
            place = LocalRun(self.folder, path, self._reserve)
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

    def __init__(self, root: Path, path: str, reserve: Reserve | None = None) -> None:
        self.root, self.path = root, path
        self.folder = root / path
        self._plain: set[str] = set()
        self._bare = near = False
        with contextlib.suppress(OSError):
            self._bare = all(entry.name == INCOMING for entry in os.scandir(self.folder))
            near = self.folder.stat().st_dev == root.stat().st_dev
        self._bare |= not os.path.lexists(self.folder)
        self._copies = Copies(self.folder, reserve, near=near)
        self.incoming = self._copies.incoming
        self._touched = self._copies.touched

    def manifest(self) -> tuple[Manifest | None, str | None]:
        """Read the manifest."""
        return read_manifest(self.folder / MANIFEST)

    def withdrawn(self) -> Manifest | None:
        """Read the withdrawn manifest."""
        return read_manifest(self.folder / WITHDRAWN)[0]

    def held(self, path: str) -> Held | None:
        """Look at a path without following links anywhere below the store."""
        if self._bare:
            return None
        try:
            self._refuse_links(path.rpartition("/")[0])
            state = os.lstat(f"{self.folder}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise as_carry_error(path, error) from error
        if not stat.S_ISREG(state.st_mode):
            raise CarryError(f"{shown(path)}: the destination has something there that is not a file; move it away")
        return Held(state.st_size, state.st_mtime_ns)

    def _refuse_links(self, inner: str) -> None:
        """Raise CarryError if a folder of the run is a link: what lies behind it may be the source itself."""
        if inner in self._plain:
            return
        folder = self.root
        for part in f"{self.path}/{inner}".split("/"):
            if part in {"", "."}:
                continue
            folder /= part
            if folder.is_symlink():
                raise CarryError(f"{shown(folder)}: a link is where a folder should be, so no copy; move it away")
        self._plain.add(inner)

    def digest(self, path: str) -> str:
        """Hash the copy from the disk."""
        try:
            return hash_file(self.folder / path, fresh=True)[0]
        except OSError as error:
            raise as_carry_error(path, error) from error

    def carry_all(self, sources: Sequence[Source]) -> Generator[tuple[Source, str | CarryError], None, None]:
        """Copy, sync, rename, read back; once more where that differs."""
        self._bare = False
        return self._copies.all(sources)

    def settle(self, source: Source) -> None:
        """Set the copy's time."""
        if source.path in self._copies.named:
            return  # set before it was renamed
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
        self._touched.update(made, {target.parent, (self.folder / path).parent})
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
            if not same_bytes(self.folder / MANIFEST, data):
                write_durably(self.folder / MANIFEST, data, self._copies.free_name())
            if (self.folder / WITHDRAWN).exists():
                (self.folder / WITHDRAWN).unlink(missing_ok=True)
                sync_folder(self.folder)
        except OSError as error:
            raise as_carry_error(MANIFEST, error) from error


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


def take_lock(fd: int, folder: Path, patience: float) -> bool:
    """Lock an open folder until it is closed; False where the file system has no locks.

    What a killed process left running ends by itself, so a lock is waited for, in seconds. Raises BusyError.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError as error:  # noqa: PERF203 (it waits)
            if time.monotonic() > deadline:
                raise BusyError(f"{shown(folder)}: another underfed is writing there; wait for it to end") from error
            time.sleep(0.05)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False

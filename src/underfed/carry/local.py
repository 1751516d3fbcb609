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

from underfed.carry.copying import copy_file, same_bytes, write_durably
from underfed.carry.durable import Durably
from underfed.carry.folders import make_folders, sync_folder
from underfed.carry.hashing import hash_file, renew
from underfed.carry.manifest import LARGEST, BrokenManifestError, Manifest, decode
from underfed.carry.names import INCOMING, MANIFEST, REPLACED, WITHDRAWN, shown
from underfed.carry.preflight import PERMANENT, check_room, clear_left_probes, space_at
from underfed.carry.reserve import Reserve
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
            locked = take_lock(lock, folder)
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
        self.root, self.path, self.reserve = root, path, reserve
        self.folder = root / path
        self.incoming = self.folder / INCOMING
        self._touched: set[Path] = set()
        self._made: set[str] = set()
        self._plain: set[str] = set()
        self._carried: set[str] = set()
        self._bare = self._near = False
        with contextlib.suppress(OSError):
            self._bare = all(entry.name == INCOMING for entry in os.scandir(self.folder))
            self._near = self.folder.stat().st_dev == root.stat().st_dev
        self._bare |= not os.path.lexists(self.folder)
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

    def carry(self, source: Source) -> str:
        """Copy, fsync, rename, read back; once more if the read-back differs."""
        [(_, came)] = self.carry_all([source])
        if isinstance(came, CarryError):
            raise came
        return came

    def carry_all(self, sources: Sequence[Source]) -> Iterator[tuple[Source, str | CarryError]]:
        """Copy all, write all of them to the disk at once, rename and read back each; once more if that differs."""
        self._bare = False
        waiting = list(sources)
        for last in (False, True):
            again = []
            written = self._write(waiting)
            renew(f"{self.folder}/{source.path}" for source, came in written if isinstance(came, str))
            for source, came in written:
                back = came if isinstance(came, CarryError) else self._read_back(source, came)
                if back is not None:
                    yield source, back
                elif not last:
                    again.append(source)
                else:
                    (self.folder / source.path).unlink(missing_ok=True)
                    yield (
                        source,
                        CarryError(f"{shown(source.path)}: copied twice, and other bytes were read back"),
                    )
            waiting = again

    def _read_back(self, source: Source, digest: str) -> str | CarryError | None:
        try:
            same = hash_file(f"{self.folder}/{source.path}") == (digest, source.size)
        except OSError as error:
            return as_carry_error(source.path, error)
        return digest if same else None

    def _write(self, sources: Sequence[Source]) -> list[tuple[Source, str | CarryError]]:
        """Copy files to temporary names, make them durable, and rename them."""
        done: dict[str, str | CarryError] = {}
        temporary: dict[str, str] = {}
        try:
            with Durably(self.folder) as durably:
                for source in sources:
                    came = done[source.path] = self._copy(source, temporary, durably)
                    if isinstance(came, CarryError) and came.permanent:
                        break
                for path, problem in durably.sync():
                    done[path] = as_carry_error(path, problem)
            for path, came in done.items():
                if isinstance(came, str):
                    try:
                        self._rename(temporary[path], path)
                        del temporary[path]
                    except OSError as error:
                        done[path] = self._not_renamed(path, temporary[path], error)
        except OSError as error:
            done |= {source.path: as_carry_error(source.path, error) for source in sources}
        finally:
            for left in temporary.values():
                with contextlib.suppress(OSError):
                    os.unlink(left)  # noqa: PTH108 (many)
        return [(source, done[source.path]) for source in sources if source.path in done]

    def _copy(self, source: Source, temporary: dict[str, str], durably: Durably) -> str | CarryError:
        fd = -1
        try:
            fd = self._open(source.path, temporary)
            digest = copy_file(source, fd)
        except (OSError, CarryError) as error:
            if fd >= 0:
                os.close(fd)
            return error if isinstance(error, CarryError) else as_carry_error(source.path, error)
        durably.add(source.path, fd)
        return digest

    def _open(self, path: str, temporary: dict[str, str]) -> int:
        """Open a temporary name. Where locks hold on one host only, another may have cleared ours away as left over."""
        try:
            temporary[path] = self._temporary()
            return os.open(temporary[path], os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._near = False
            temporary[path] = self._temporary()
            return os.open(temporary[path], os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _not_renamed(self, path: str, temporary: str, error: OSError) -> CarryError:
        """Files may not always move between folders of one file system (project quotas, bind mounts): copy inside the
        run then, this file and those beside it that were written before that was known.
        """
        if error.errno in {errno.EXDEV, errno.ENOENT} and Path(temporary).parent != self.incoming:
            self._near = False
            return CarryError(f"{shown(path)}: {error.strerror}", transient=True)
        return as_carry_error(path, error)

    def _rename(self, temporary: str, path: str) -> None:
        inner = path.rpartition("/")[0]
        with self._lock:
            if inner not in self._made:
                self._touched |= make_folders(self.folder, inner)
                self._touched.add(self.folder / inner)
                self._made.add(inner)
        os.rename(temporary, f"{self.folder}/{path}")  # noqa: PTH104 (many)
        self._carried.add(path)

    def _temporary(self) -> str:
        """Return the path of an empty file on the run's own file system."""
        reserved = self.reserve.take() if self.reserve and self._near else None
        if reserved:
            return reserved
        path = self._free_name()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return str(path)

    def _free_name(self) -> Path:
        with self._lock:
            self.incoming.mkdir(exist_ok=True)
            self._count += 1
            return self.incoming / f"{os.getpid()}-{self._count}"

    def settle(self, source: Source) -> None:
        """Set the copy's time."""
        if source.path in self._carried:
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
            if not same_bytes(self.folder / MANIFEST, data):
                write_durably(self.folder / MANIFEST, data, self._free_name())
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

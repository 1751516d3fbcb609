"""A store behind fsspec: s3://, gs:// and what else has a file system there. Extra `cloud`."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from underfed.carry.copying import check_unchanged
from underfed.carry.decide import READERS
from underfed.carry.hashing import blocks, hash_bytes, hash_stream, new_hasher
from underfed.carry.manifest import LARGEST, BrokenManifestError, Manifest, decode
from underfed.carry.names import MANIFEST, PROBE, REPLACED, WITHDRAWN, shown
from underfed.carry.store import CarryError, Held, RunPlace, Store
from underfed.carry.take import Source
from underfed.errors import UsageError

#: Stores whose objects need no folders.
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "obs", "oci", "tos"})


def remote_store(url: str) -> RemoteStore:
    """Open the store that a URL names. Raises UsageError when the extra or the place is missing."""
    try:
        import fsspec
    except ImportError as error:
        raise UsageError(f"{shown(url)}: object stores need an extra: pip install 'underfed[cloud]'") from error
    try:
        system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise UsageError(f"{shown(url)}: {error}; pip install 'underfed[cloud]'") from error
    except Exception as error:
        raise UsageError(f"{shown(url)}: cannot be opened: {_one_line(error)}") from error
    return RemoteStore(url, system, root.rstrip("/"))


class RemoteStore(Store):
    """Runs below a prefix of an object store; an object is there whole or not at all."""

    def __init__(self, name: str, system: Any, root: str) -> None:
        self.name, self.system, self.root = name, system, root

    def prepare(self) -> None:
        """Write and read one small object, since rights and quota show only then."""
        probe = f"{self.root}/{PROBE}-{os.getpid()}"
        data = os.urandom(1024)
        try:
            _make_folders(self.system, self.root)
            self.system.pipe_file(probe, data)
            back = self.system.cat_file(probe)
            self.system.rm_file(probe)
        except Exception as error:
            raise UsageError(
                f"{shown(self.name)}: cannot be written: {_one_line(error)}; nothing was copied"
            ) from error
        if back != data:
            raise UsageError(f"{shown(self.name)}: gives back other bytes than were written; nothing was copied")

    def check_room(self, sizes: Sequence[int], folders: int, counted_bytes: int) -> None:
        """Object stores do not say what they hold; `prepare` has written once."""

    def space_text(self) -> str:
        """Object stores do not say."""
        return "an object store, which does not say what room is left"

    @contextlib.contextmanager
    def run(self, path: str, *, write: bool) -> Iterator[RunPlace]:  # noqa: ARG002 (no locks there)
        """Open a run's prefix; two writers at once are not kept apart."""
        yield RemoteRun(self.system, self.root, path)


class RemoteRun(RunPlace):
    """One run's prefix."""

    def __init__(self, system: Any, root: str, path: str) -> None:
        self.system, self.root, self.path = system, root, path
        self.prefix = root if path == "." else f"{root}/{path}"

    def manifest(self) -> tuple[Manifest | None, str | None]:
        """Read the manifest."""
        return self._read(MANIFEST)

    def withdrawn(self) -> Manifest | None:
        """Read the withdrawn manifest."""
        return self._read(WITHDRAWN)[0]

    def _read(self, name: str) -> tuple[Manifest | None, str | None]:
        try:
            with self.system.open(f"{self.prefix}/{name}", "rb") as file:
                return decode(file.read(LARGEST)), None
        except FileNotFoundError:
            return None, None
        except BrokenManifestError as error:
            return None, str(error)
        except Exception as error:
            raise _as_carry_error(name, error) from error

    def held(self, path: str) -> Held | None:
        """Ask for an object's size; the time an object was written says nothing of the run's age."""
        try:
            info = self.system.info(f"{self.prefix}/{path}")
        except FileNotFoundError:
            return None
        except Exception as error:
            raise _as_carry_error(path, error) from error
        if info.get("type") != "file":
            return None
        return Held(int(info["size"] or 0), None)

    def digest(self, path: str) -> str:
        """Read an object back."""
        try:
            with self.system.open(f"{self.prefix}/{path}", "rb", cache_type="none") as file:
                return hash_stream(file)[0]
        except Exception as error:
            raise _as_carry_error(path, error) from error

    def carry_all(self, sources: Sequence[Source]) -> Generator[tuple[Source, str | CarryError], None, None]:
        """Send files, several at once, and prove each by the store's own MD5 or by reading it back."""
        with ThreadPoolExecutor(READERS) as pool:
            try:
                for done in as_completed([pool.submit(self._tried, source) for source in sources]):
                    yield done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _tried(self, source: Source) -> tuple[Source, str | CarryError]:
        try:
            return source, self._carry(source)
        except CarryError as error:
            return source, error

    def _carry(self, source: Source) -> str:
        url = f"{self.prefix}/{source.path}"
        hasher, plain = new_hasher(), hashlib.md5(usedforsecurity=False)
        try:
            fd = os.open(source.real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise CarryError(f"{shown(source.path)}: {error.strerror}") from error
        try:
            check_unchanged(source, os.fstat(fd))
            _make_folders(self.system, url.rpartition("/")[0])
            file = self.system.open(url, "wb")
            try:
                for block in blocks(fd, source.size):
                    hasher.update(block)
                    plain.update(block)
                    file.write(bytes(block))
                check_unchanged(source, os.fstat(fd))
            except BaseException:
                _discard(file)
                raise
            file.close()
        except CarryError:
            raise
        except Exception as error:
            raise _as_carry_error(source.path, error) from error
        finally:
            os.close(fd)
        digest = hasher.hexdigest()
        held = self.held(source.path)
        if held is None or held.size != source.size:
            raise CarryError(f"{shown(source.path)}: sent, but the store holds another size")
        if self._own_md5(url) != plain.hexdigest() and self.digest(source.path) != digest:
            raise CarryError(f"{shown(source.path)}: sent, but other bytes were read back")
        return digest

    def _own_md5(self, url: str) -> str | None:
        """Return the MD5 that the store itself computed, where it says so; an ETag may be something else."""
        try:
            info = self.system.info(url)
        except Exception:
            return None
        text = info.get("md5Hash") or info.get("ContentMD5") or info.get("content_md5")
        if isinstance(text, str):
            with contextlib.suppress(binascii.Error, ValueError):
                return base64.b64decode(text).hex()
        tag = info.get("ETag")
        return tag.strip('"').lower() if isinstance(tag, str) else None

    def settle(self, source: Source) -> None:
        """Objects keep no time of ours."""

    def withdraw(self) -> None:
        """Move the manifest away."""
        self._move(MANIFEST, f"{self.prefix}/{WITHDRAWN}")

    def set_aside(self, path: str) -> str:
        """Move an object below `.replaced/` beside the run."""
        parent, _, name = ("", "", "") if self.path == "." else self.path.rpartition("/")
        target = "/".join(part for part in (parent, REPLACED, name, path) if part)
        number = 0
        try:
            while self.system.exists(f"{self.root}/{target}" + (f".{number}" if number else "")):
                number += 1
        except Exception as error:
            raise _as_carry_error(path, error) from error
        target += f".{number}" if number else ""
        return target if self._move(path, f"{self.root}/{target}") else ""

    def _move(self, path: str, target: str) -> bool:
        url = f"{self.prefix}/{path}"
        try:
            if not self.system.exists(url):
                return False
            _make_folders(self.system, target.rpartition("/")[0])
            self.system.copy(url, target)
            self.system.rm_file(url)
        except Exception as error:
            raise _as_carry_error(path, error) from error
        return True

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, read it back, drop the withdrawn one."""
        url, data = f"{self.prefix}/{MANIFEST}", manifest.encode()
        try:
            self.system.pipe_file(url, data)
            if hash_bytes(self.system.cat_file(url)) != hash_bytes(data):
                raise CarryError(f"{MANIFEST}: sent, but other bytes were read back")
            if self.system.exists(f"{self.prefix}/{WITHDRAWN}"):
                self.system.rm_file(f"{self.prefix}/{WITHDRAWN}")
        except CarryError:
            raise
        except Exception as error:
            raise _as_carry_error(MANIFEST, error) from error


def _make_folders(system: Any, path: str) -> None:
    """Make folders where the store has such; among buckets that would make a bucket, of a name that was mistyped."""
    names = (system.protocol,) if isinstance(system.protocol, str) else system.protocol
    if not _BUCKETS & set(names):
        with contextlib.suppress(FileExistsError, NotImplementedError):
            system.makedirs(path, exist_ok=True)


def _discard(file: Any) -> None:
    """Leave an object that was begun unfinished, where the file system can; else close it."""
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(AttributeError):
        file.closed = True  # else the object would be sent when the file is collected as garbage


def _as_carry_error(path: str, error: Exception) -> CarryError:
    passing = isinstance(error, TimeoutError | ConnectionError)
    return CarryError(f"{shown(path)}: {_one_line(error)}", transient=passing)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return shown(text)[:300]

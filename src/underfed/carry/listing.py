"""What the far side holds, as it says itself; nothing in it is believed that could lead out of the destination."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field

from underfed.carry.far import Record
from underfed.carry.manifest import BrokenManifestError, decode, safe_relative
from underfed.carry.names import INCOMING, shown


@dataclass
class FarFile:
    """A file there: size in bytes and mtime in ns where known, and the hashes it must have (`algorithm:hex`)."""

    path: str
    size: int | None
    mtime_ns: int | None
    mode: int | None
    allocated: int | None = None
    expected: set[str] = field(default_factory=set)

    @property
    def may_have_holes(self) -> bool:
        """Say whether the disk there holds less than the size, or nothing says what it holds."""
        return self.allocated is None or self.size is None or self.allocated < self.size


class Listing:
    """The tree of one unit. Filled by one thread, read by others: hashes come while files are already on the way."""

    def __init__(self, units: list[str]) -> None:
        self.units = frozenset(units)
        self.files: dict[str, FarFile] = {}
        self.folders: list[str] = []
        self.links: dict[str, str] = {}
        self.wrong: dict[str, str] = {}
        self.notes: list[tuple[str, str]] = []
        self.distrust = False
        self.complete = False
        self._unread: set[str] = set()
        self._promises: dict[str, str] = {}
        self._covered: dict[str, tuple[int, int]] = {}
        self._more = threading.Condition()
        self._ended = False

    def add(self, record: Record) -> None:
        """Take in one record."""
        if record.kind in {"t", "s", "a"}:
            return
        path = record.path
        first = path.partition("/")[0]
        if first not in self.units or first == INCOMING or not safe_relative(path):
            if first != INCOMING:
                self.wrong[path] = "a name that would leave the destination; it is not carried"
            else:
                self.notes.append((path, f"{shown(path)}: an unfinished pull lies there; it is not carried"))
            return
        if record.kind == "f":
            self.files[path] = FarFile(path, record.size, record.mtime_ns, record.mode, _number(record.extra))
        elif record.kind == "d":
            self.folders.append(path)
        elif record.kind == "l":
            self.links[path] = record.extra
        elif record.kind == "o":
            self.notes.append((path, f"{shown(path)}: not a regular file, so there are no bytes to carry"))
        elif record.kind == "m":
            self._manifest(path, record.extra)
        elif record.kind == "h":
            self._hash(path, record.extra)
        elif record.kind == "x":
            self.wrong[path] = f"on the far side: {shown(record.extra) or 'cannot be read'}"
            with self._more:
                self._unread.add(path)
                self._more.notify_all()

    def _manifest(self, folder: str, text: str) -> None:
        try:
            manifest = decode(os.fsencode(text))
        except BrokenManifestError as error:
            self.distrust = True
            self.notes.append((folder, f"{shown(folder)}: the manifest there is not used: {error}"))
            return
        for entry in manifest.entries.values():
            path = f"{folder}/{entry.path}"
            self._covered[path] = (entry.size, entry.mtime_ns)
            self._promises[path] = f"blake3:{entry.blake3}"

    def _hash(self, path: str, text: str) -> None:
        algorithm, _, digest = text.partition(":")
        if algorithm not in {"blake3", "sha256"} or len(digest) != 64:
            self.wrong[path] = "the far side gave no usable hash"
            return
        with self._more:
            if path in self.files:
                self.files[path].expected.add(text)
            self._more.notify_all()

    def listed(self) -> None:
        """The tree is complete: hold it against the manifests in it."""
        for path, digest in self._promises.items():
            file = self.files.get(path)
            if file is None:
                self.wrong[path] = "its manifest there names it, but it is gone"
            else:
                file.expected.add(digest)

    def end(self) -> None:
        """No more hashes come."""
        with self._more:
            self._ended = True
            self._more.notify_all()

    def needs_hash(self, path: str) -> bool:
        """Say whether a hash of this file is still to come: those that a manifest vouches for get none."""
        file = self.files[path]
        if path in self._covered and not self.distrust and self._covered[path] == (file.size, file.mtime_ns):
            return False
        return not any(digest != self._promises.get(path) for digest in file.expected)

    def expected(self, path: str) -> set[str]:
        """Wait for what is to be known of a file's content and return it; empty if nothing is."""
        with self._more:
            while not (self._ended or path in self._unread or not self.needs_hash(path)):
                self._more.wait()
            return set(self.files[path].expected)

    def in_order(self) -> list[FarFile]:
        """Return the files in the order in which the far side hashes them."""
        return sorted(self.files.values(), key=lambda file: os.fsencode(file.path))

    def state(self) -> dict[str, tuple[int | None, int | None]]:
        """Return size and mtime of every file, to see whether something changed."""
        return {path: (file.size, file.mtime_ns) for path, file in self.files.items()}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

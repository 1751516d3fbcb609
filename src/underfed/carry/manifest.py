"""A run's manifest: JSON Lines, one line a file, and one digest over them all; written last, atomically."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from underfed.carry.hashing import hash_bytes

SCHEMA = "underfed.manifest/1"
#: A manifest larger than this is not read: nothing that these commands write comes near.
LARGEST = 256 << 20

State = Literal["copied", "size-matched", "verified"]


class BrokenManifestError(ValueError):
    """The manifest cannot be used; the text says why."""


@dataclass(frozen=True)
class Entry:
    """One file of a run: its path below the run's folder with slashes, size in bytes, mtime in ns, BLAKE3 in hex."""

    path: str
    size: int
    mtime_ns: int
    blake3: str
    state: State = "verified"


@dataclass(frozen=True)
class Manifest:
    """What a run consisted of. `time_ns` is the time that decides which of two copies is newer."""

    run: str
    marker: str
    time_ns: int
    entries: dict[str, Entry] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the manifest's bytes; the same run gives the same bytes."""
        return self._encoded

    @cached_property
    def _encoded(self) -> bytes:
        lines: list[dict[str, Any]] = [
            {"schema": SCHEMA, "run": self.run, "marker": self.marker, "time_ns": self.time_ns, "hash": "blake3"}
        ]
        lines += [
            {"path": e.path, "size": e.size, "mtime_ns": e.mtime_ns, "blake3": e.blake3, "state": e.state}
            for _, e in sorted(self.entries.items())
        ]
        body = "".join(json.dumps(line) + "\n" for line in lines).encode("ascii")
        last = {"files": len(self.entries), "bytes": self.bytes, "digest": hash_bytes(body)}
        return body + (json.dumps(last) + "\n").encode("ascii")

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(e.size for e in self.entries.values())

    @property
    def digest(self) -> str:
        """The digest that stands in the last line."""
        return str(json.loads(self.encode().rstrip().rpartition(b"\n")[2])["digest"])


def safe_relative(path: object) -> bool:
    """Say whether a name read from elsewhere is a plain path below a folder: it cannot leave it."""
    if not isinstance(path, str) or path == "" or "\0" in path or path[0] == "/" or path[-1] == "/" or "//" in path:
        return False
    return (path[0] != "." and "/." not in path) or not any(part in {".", ".."} for part in path.split("/"))


def decode(data: bytes) -> Manifest:
    """Read a manifest and hold it against its digest.

    Raises BrokenManifestError when it is cut, changed, of another version, or names a path outside its folder.
    """
    lines = data.split(b"\n")
    if len(lines) < 3 or lines[-1] != b"":
        raise BrokenManifestError("it is cut short")
    body, last = b"\n".join(lines[:-2]) + b"\n", lines[-2]
    try:
        trailer = json.loads(last)
        header = json.loads(lines[0])
        if header["schema"] != SCHEMA:
            raise BrokenManifestError(f"it is of another kind ({header['schema']!r:.60})")
        if trailer["digest"] != hash_bytes(body):
            raise BrokenManifestError("its digest does not match its lines")
        entries = {}
        for line in lines[1:-2]:
            entry = _entry(json.loads(line))
            entries[entry.path] = entry
        if trailer["files"] != len(entries):
            raise BrokenManifestError("it names another number of files than it has")
        return Manifest(str(header["run"]), str(header["marker"]), int(header["time_ns"]), entries)
    except BrokenManifestError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BrokenManifestError("it is not a manifest") from error


def _entry(line: dict[str, Any]) -> Entry:
    entry = Entry(line["path"], line["size"], line["mtime_ns"], line["blake3"], line["state"])
    whole = isinstance(entry.size, int) and entry.size >= 0 and isinstance(entry.mtime_ns, int)
    digest = isinstance(entry.blake3, str) and len(entry.blake3) == 64
    if not (safe_relative(entry.path) and whole and digest and entry.state == "verified"):
        raise BrokenManifestError("it has a line that no copy can have written")
    return entry

"""Bytes of a trace file: plain or gzip, several members, cut off or damaged; one block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from underfed.errors import UsageError
from underfed.trace.sniff import refuse_by_magic

#: Sizes that stay in a core's cache.
_READ = 64 << 10
_BLOCK = 256 << 10
_GZIP = b"\x1f\x8b"
_DAMAGE: tuple[type[BaseException], ...] = (isal_zlib.error, ValueError, OverflowError)  # type: ignore[assignment]


def shown(path: Path | str) -> str:
    """Return a path as it may be printed: control characters escaped."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(path))


class Source:
    """The inflated bytes of one file. `limits` says afterwards what was missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limits: list[str] = []
        self._seekable: BinaryIO | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of at most 256 KiB; raise UsageError where the file cannot be read or is another format."""
        try:
            with self.path.open("rb") as file:
                first = file.read(_BLOCK)
                if not first:
                    raise UsageError(f"{shown(self.path)} is empty: export the trace again")
                if first[:2] == _GZIP:
                    yield from self._inflate(file, first)
                    return
                refuse_by_magic(first, shown(self.path))
                self._seekable = file
                while first:
                    yield first
                    first = file.read(_BLOCK)
        except OSError as error:
            raise UsageError(f"cannot read {shown(self.path)}: {error.strerror or error}") from None

    def skip(self, count: int) -> bool:
        """Leave out the next `count` bytes without reading them; False, with nothing done, where that cannot be."""
        if self._seekable is None:
            return False
        self._seekable.seek(count, 1)
        return True

    def _inflate(self, file: BinaryIO, data: bytes) -> Iterator[bytes]:
        member = isal_zlib.decompressobj(wbits=31)
        begun = False
        while True:
            try:
                out = member.decompress(data, _BLOCK)
            except _DAMAGE:
                if not begun:
                    raise UsageError(f"{shown(self.path)} is a damaged gzip file: copy or export it again") from None
                self.limits.append("the gzip data is damaged; only what comes before the damage was read")
                return
            if out:
                if not begun:
                    refuse_by_magic(out, shown(self.path))
                begun = True
                yield out
            if member.eof:
                data = (member.unused_data or file.read(_READ)).lstrip(b"\0")
                if not data:
                    return
                if data[:2] != _GZIP[: len(data[:2])]:
                    self.limits.append("bytes behind the gzip data were left out")
                    return
                if len(data) < 32:
                    data += file.read(_READ)
                member = isal_zlib.decompressobj(wbits=31)
                continue
            data = member.unconsumed_tail
            if not data:
                data = file.read(_READ)
                if not data:
                    self.limits.append("the gzip file is cut off; only the part before the cut was read")
                    return

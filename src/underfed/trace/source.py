"""Bytes of a trace file: plain or gzip, several members, cut off or damaged; one block at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from isal import isal_zlib

from underfed.errors import UsageError
from underfed.trace.sniff import refuse_by_magic

#: Sizes that stay in a core's cache.
_READ = 64 << 10
_BLOCK = 256 << 10
_GZIP = b"\x1f\x8b"
#: A store is asked for this much at a time.
_FAR_BLOCK = 8 << 20
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_DAMAGE: tuple[type[BaseException], ...] = (isal_zlib.error, ValueError, OverflowError)  # type: ignore[assignment]


def is_url(path: Path | str) -> bool:
    """Tell whether a path is one of a store behind fsspec, such as s3://bucket/trace.json.gz."""
    return isinstance(path, str) and bool(_URL.match(path))


def opened(path: Path | str) -> BinaryIO:
    """Open a file, or an object of a store, to read bytes; raises OSError, or UsageError where a store refuses."""
    if isinstance(path, Path) or not is_url(path):
        return Path(path).open("rb")
    system, inside = store(path)
    try:
        found: BinaryIO = system.open(inside, "rb", block_size=_FAR_BLOCK)
    except OSError:
        raise
    except Exception as error:  # each store raises errors of its own library
        raise UsageError(f"cannot read {shown(path)}: {one_line(error)}") from None
    return found


def store(url: str) -> tuple[Any, str]:
    """Return the file system that a URL names, and the path in it; raises UsageError where an extra is missing."""
    try:
        import fsspec

        system, inside = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(f"{shown(url)}: {one_line(error)}; pip install 'underfed[cloud]'") from None
    except Exception as error:
        raise UsageError(f"{shown(url)}: cannot be opened: {one_line(error)}") from None
    return system, str(inside)


def one_line(error: BaseException) -> str:
    """Return an error's text in one line that can be printed."""
    return shown(" ".join(str(error).split()))[:300] or type(error).__name__


def shown(path: Path | str) -> str:
    """Return a path as it may be printed: control characters escaped."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in str(path))


class Source:
    """The inflated bytes of one file. `limits` says afterwards what was missing."""

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.limits: list[str] = []
        self._seekable: BinaryIO | None = None

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of at most 256 KiB; raise UsageError where the file cannot be read or is another format."""
        try:
            with opened(self.path) as file:
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
            raise UsageError(f"cannot read {shown(self.path)}: {error.strerror or one_line(error)}") from None
        except UsageError:
            raise
        except Exception as error:
            if not is_url(self.path):
                raise
            raise UsageError(f"cannot read {shown(self.path)}: {one_line(error)}") from None

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

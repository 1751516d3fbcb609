"""Cuts a Kineto document into its head, chunks of whole events, and its tail, without parsing it.

A cut is guessed at `}, {"`. A chunk that then decodes as a list of events proves the guess: JSON read from a true start
to a false end does not parse. One that does not decode is read event by event, and what it leaves over is carried on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from underfed.trace.source import Source

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_END = re.compile(rb"\}\s*\](?=\s*(?:,\s*\"|\}|\Z))")
_CUT = re.compile(rb"\}\s*,\s*(?=\{)")
_HEAD_MOST = 64 << 20
#: About how much text is decoded at a time. Text and decoded events of about this size stay in a core's cache: at
#: 4 MiB the same work takes half as long again.
CHUNK = 512 << 10
#: A single event longer than this is given up.
EVENT_MOST = 32 << 20


Ending = Literal["cut", "middle", "last"]
CUT: Final = "cut"
MIDDLE: Final = "middle"
LAST: Final = "last"


class NotATraceError(Exception):
    """The document holds no list of events; `head` is its beginning."""

    def __init__(self, head: bytes) -> None:
        super().__init__("no traceEvents")
        self.head = head


class Splitter:
    """Head and chunks of one document. `head` holds the fields before the events, once the first chunk is out."""

    def __init__(self, source: Source, wanted: Callable[[int], bool] | None = None) -> None:
        self._source = source
        self._blocks = source.blocks()
        self._wanted = wanted
        self._chunk = CHUNK
        self.head: dict[str, Any] = {}

    def chunks(self) -> Iterator[tuple[bytes, Ending]]:
        """Yield text inside the list of events, and how it ends; the last one runs to the end of the file.

        A chunk whose number is not wanted may come as less than its text.
        """
        rest, least, number = self._skip_head(), self._chunk, 0
        while True:
            unwanted = self._wanted is not None and not self._wanted(number) and len(rest) < least
            if unwanted and self._source.skip(least - len(rest)):
                # Where this chunk ends matters, what is in it does not.
                rest, least = b"", 0
            cut = _CUT.search(rest, least)
            if cut is not None:
                yield rest[: cut.start() + 1], CUT
                rest, least, number = rest[cut.end() :], self._chunk, number + 1
                continue
            more, size = [rest], len(rest)
            # Reading at least as much as is there keeps the copying linear in the size of a long event.
            goal = size + max(self._chunk, size)
            while size < goal:
                block = next(self._blocks, b"")
                if not block:
                    yield b"".join(more), LAST
                    return
                more.append(block)
                size += len(block)
            if len(rest) > EVENT_MOST:
                yield rest, MIDDLE
                more[0], number = b"", number + 1
            rest = b"".join(more)

    def _skip_head(self) -> bytes:
        seen = b""
        at = 0
        while True:
            block = next(self._blocks, b"")
            seen += block
            text = seen.lstrip(b"\xef\xbb\xbf \t\r\n")
            if text[:1] == b"[":
                return text[1:]
            if text[:1] not in (b"{", b""):
                raise NotATraceError(seen)
            for found in _EVENTS.finditer(seen, max(0, at - 64)):
                fields = _fields(seen[: found.start()] + b'"_":0}')
                if fields is not None:
                    self.head = fields
                    return seen[found.end() :]
            at = len(seen)
            if not block or (at > 4096 and _foreign(seen)) or at > _HEAD_MOST:
                return self._damaged_head(seen)

    def _damaged_head(self, seen: bytes) -> bytes:
        found = _EVENTS.search(seen)
        if found is None or _foreign(seen):
            raise NotATraceError(seen)
        return seen[found.end() :]


def _foreign(seen: bytes) -> bool:
    sample = seen[:4096]
    return b'"rocprofiler' in sample or bool(re.search(rb'"schema"\s*:\s*"1\.\d[^"]*chakra', sample))


def _fields(text: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def tail_fields(text: bytes) -> dict[str, Any] | None:
    """Fields behind the list of events, from the text behind its closing bracket; None where it is not whole."""
    text = text.strip()
    if not text:
        return {}
    return _fields(b'{"_":0' + text) if text[:1] in (b",", b"}") else None


def last_events(text: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield guesses at the last events in the last chunk and the fields behind them, the likeliest first."""
    for end in list(_END.finditer(text))[-1:-4:-1]:
        if (fields := tail_fields(text[end.end() :])) is not None:
            yield text[: end.start() + 1], fields
    if text.lstrip()[:1] == b"]" and (fields := tail_fields(text.lstrip()[1:])) is not None:
        yield b"", fields

"""Reads Kineto JSON, as torch.profiler writes it, into a Timeline. Streams: the document is never in memory whole."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from underfed.errors import UsageError
from underfed.timeline.model import Timeline
from underfed.trace.columns import Columns, shortened, thread_name, whole_number
from underfed.trace.events import Patient
from underfed.trace.heap import keep_freed_memory
from underfed.trace.parallel import large, read_shares
from underfed.trace.sniff import refuse_json
from underfed.trace.source import Source, is_url, shown
from underfed.trace.split import CUT, EVENT_MOST, LAST, Ending, NotATraceError, Splitter, last_events
from underfed.trace.typed import chosen, decode


def read(path: str | Path, processes: int = 1) -> Timeline:
    """Read one trace, .json or .json.gz; a large one in up to `processes` processes.

    A file that is cut off or partly broken gives what is whole, and `limits` says so. Raises UsageError where the file
    cannot be read, is another format, or holds no event at all.
    """
    with uncollected():
        return _read(path if is_url(path) else Path(path), processes)


@contextmanager
def uncollected() -> Iterator[None]:
    """Hold off the garbage collector: it would go through all rows again and again, and none of them is in a cycle."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _read(path: str | Path, processes: int) -> Timeline:
    reader = Reader()
    much = isinstance(path, Path) and large(path)
    if much:
        keep_freed_memory()
    if processes > 1 and much and isinstance(path, Path) and (shares := read_shares(path, processes)) is not None:
        reader.columns, fields, limits = shares
        reader.whole = True
        return reader.timeline(fields, limits, shown(path))
    source = Source(path)
    splitter = Splitter(source)
    try:
        for text, ending in splitter.chunks():
            reader.columns.modules = has_modules(splitter.head)
            reader.take(text, ending)
    except NotATraceError as error:
        raise refuse_json(error.head, shown(path)) from None
    return reader.timeline({**splitter.head, **reader.tail}, source.limits, shown(path))


def has_modules(head: dict[str, Any]) -> bool:
    """Tell from the fields before the events whether Python functions were recorded, and with them modules."""
    return bool(head.get("with_stack"))


class Reader:
    """Takes the chunks of one trace in order."""

    def __init__(self) -> None:
        self.columns = Columns()
        self.patient = Patient()
        self.tail: dict[str, Any] = {}
        self.lost = 0
        self.whole = False
        self._carry = b""
        self._glue = b""

    def take(self, text: bytes, ending: Ending) -> None:
        """Read one chunk: fast where it is as a profiler writes it, else event by event."""
        if self.patient.ended:
            return
        if self._carry:
            text, self._carry = self._carry + self._glue + text, b""
        elif self.quickly(text, ending):
            return
        self._slowly(text, ending)

    def quickly(self, text: bytes, ending: Ending) -> bool:
        """Read a chunk that is as a profiler writes it; False, with nothing taken, for any other."""
        if self._fast(text, ending, 0):
            return True
        short = shortened(text)
        return short is not None and self._fast(short[0], ending, short[1])

    def _fast(self, text: bytes, ending: Ending, shift_us: int) -> bool:
        if ending == CUT:
            chunk = decode(text)
            return chunk is not None and self.columns.add(chunk, text, shift_us)
        for events, fields in last_events(text) if ending == LAST else ():
            chunk = decode(events)
            if chunk is not None and self.columns.add(chunk, text, shift_us):
                self.tail, self.whole = fields, True
                return True
        return False

    def _slowly(self, text: bytes, ending: Ending) -> None:
        events, self._carry, fields = self.patient.read(text, ending == LAST)
        # A cut swallowed the comma behind it.
        self._glue = b"," if ending == CUT else b""
        self.columns.add(chosen(events))
        if self.patient.ended:
            self.tail, self.whole = fields, True
        if len(self._carry) > EVENT_MOST:
            self._carry = b""
            self.lost += 1

    def timeline(self, fields: dict[str, Any], limits: list[str], path: str) -> Timeline:
        """Close the columns; `fields` are those beside the events."""
        columns = self.columns
        if columns.events == 0 and not self.whole:
            raise UsageError(f"{path} is JSON, but no whole event could be read from it: export the trace again")
        limits = list(limits)
        if not self.whole and not limits:
            limits.append("the trace is cut off; only the events before the cut were read")
        lost = self.lost + self.patient.broken
        if lost:
            limits.append(f"{lost} broken event{'s were' if lost > 1 else ' was'} left out")
        if columns.unusable:
            limits.append(f"{columns.unusable} events without a usable time were left out")
        if columns.backwards:
            limits.append(f"{columns.backwards} events end before they start and count as empty")
        device, host = columns.tables()
        return Timeline(
            device=device,
            host=host,
            names=tuple(columns.names),
            shapes=tuple((_shown(dims), _shown(types)) for dims, types in columns.shapes),
            threads=tuple(thread_name(pid, tid) for pid, tid in columns.threads),
            collectives=tuple(columns.collectives),
            stream_waits=tuple(columns.waits),
            events=columns.events,
            limits=tuple(limits),
            **about(fields),
        )


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def about(fields: dict[str, Any]) -> dict[str, Any]:
    """What the fields beside the events say of the run."""
    distributed = fields.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    properties = fields.get("deviceProperties")
    names: dict[int, str] = {}
    capability: tuple[int, int] | None = None
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and (number := whole_number(entry.get("id"))) is not None:
            names[number] = str(entry.get("name"))[:128]
            major, minor = whole_number(entry.get("computeMajor")), whole_number(entry.get("computeMinor"))
            # AMD numbers its architectures in the same fields, and its data-centre cards have waves of 64.
            if major is not None and whole_number(entry.get("warpSize")) == 32:
                capability = (major, minor or 0)
    base = whole_number(fields.get("baseTimeNanoseconds")) or 0
    return {
        "base_ns": base,
        "rank": whole_number(distributed.get("rank")),
        "world_size": whole_number(distributed.get("world_size")),
        "device_names": names,
        "capability": capability,
        "flags": {key: bool(fields.get(key)) for key in ("with_stack", "record_shapes", "profile_memory")},
    }

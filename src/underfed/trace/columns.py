"""From decoded events to columns: small arrays a chunk, joined once at the end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from underfed.timeline import model as m
from underfed.trace.events import EXACT_FRACTION_US, NO_ARGS, ExactEvent
from underfed.trace.typed import HOST_KIND, Chunk

#: Times outside of +-126 years and events longer than a day are not real.
_MOST_NS = 4_000_000_000_000_000_000
_LONGEST_NS = 100_000_000_000_000
_NAME_MOST = 2048

_FRACTION = re.compile(rb'"ts"\s*:\s*-?\d{13,}\.\d*[1-9]')

_LONG = re.compile(rb'("ts"\s*:\s*)(\d{6})\d{10}\.')
_KEPT_US = 10**10

DEVICE_COLUMNS = ("start", "end", "kind", "device", "stream", "correlation", "name", "bytes")
HOST_COLUMNS = ("start", "end", "kind", "thread", "name", "correlation")
#: Columns that only some traces have.
OPERATOR_COLUMNS = ("shape", "sequence")
DTYPES: dict[str, Any] = {
    "kind": np.uint8, "device": np.int32, "thread": np.int32, "name": np.int32, "shape": np.int32,
}  # fmt: skip
_SHAPE_MOST = 4096
#: Waits of streams that are kept, to bound memory: a step has some hundreds.
_WAITS_MOST = 100_000
#: Looking through all of a large text takes a tenth of the time of reading it.
_LOOKED_FOR_SHAPES = 32


def shortened(text: bytes) -> tuple[bytes, int] | None:
    """Take the leading digits off times since 1970, so that doubles hold the rest to the ns; and return what they were.

    Every time in the text has to begin with the same six of its sixteen digits; `Columns.add` checks that.
    """
    found = _LONG.search(text)
    if found is None:
        return None
    return text.replace(found[1] + found[2], found[1] + b"1"), (int(found[2]) - 1) * _KEPT_US


class Numbering(dict[Any, int]):
    """Numbers keys in the order in which they come."""

    def __missing__(self, key: Any) -> int:
        number = len(self)
        self[key] = number
        return number


class Names(Numbering):
    """Numbers names by what is kept of them: a longer one costs no more than its beginning."""

    def __missing__(self, key: Any) -> int:
        return self[key[:_NAME_MOST]] if len(key) > _NAME_MOST else super().__missing__(key)


class Columns:
    """What has been read so far."""

    def __init__(self) -> None:
        self.names = Names()
        self.threads = Numbering()
        self.shapes = Numbering()
        self.modules = False
        """Whether the trace has modules; then the numbers matter that lead from a backward pass to its forward one."""
        self._seen_shapes, self._looked = False, 0
        self.device: list[dict[str, NDArray[Any]]] = []
        self.host: list[dict[str, NDArray[Any]]] = []
        self.collectives: list[m.Collective] = []
        self.waits: list[m.StreamWait] = []
        self.events = 0
        self.devices = 0
        self.backwards = 0
        self.unusable = 0

    def add(self, chunk: Chunk, text: bytes = b"", shift_us: int = 0) -> bool:
        """Take a chunk; False, with nothing taken, where doubles cannot hold the times in its `text`.

        `shift_us` is what `shortened` took off them.
        """
        rows, kinds = chunk.rows, chunk.kinds
        times = self._times(rows, text, shift_us)
        if times is None:
            return False
        self.events += chunk.total
        if len(self.waits) < _WAITS_MOST:
            self.waits += [wait for one in chunk.waits if (wait := _stream_wait(one.args)) is not None]
        start, end, usable = times
        if not usable.all():
            self.unusable += int(usable.size - usable.sum())
            rows = list(compress(rows, usable.tolist()))
            kinds, start, end = kinds[usable], start[usable], end[usable]
        self.backwards += int((end < start).sum())
        of_host = kinds >= HOST_KIND
        for flags, take in ((~of_host, self._device), (of_host, self._host)):
            if flags.all() and rows:
                take(rows, kinds, start, end)
            elif flags.any():
                take(list(compress(rows, flags.tolist())), kinds[flags], start[flags], end[flags])
        if of_host.any():
            self._operators(list(compress(rows, of_host.tolist())), self._shaped(text))
        return True

    def _times(
        self, rows: Sequence[Any], text: bytes, shift_us: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]] | None:
        ts = np.array([row.ts for row in rows], np.float64)
        dur = np.array([row.dur for row in rows], np.float64)
        # Only what is read event by event, without its text, can be exact.
        exact = [] if text else [at for at, row in enumerate(rows) if type(row) is ExactEvent]
        usable = (np.abs(ts) < _MOST_NS / 1000) & (np.abs(dur) < _LONGEST_NS / 1000)
        if shift_us and not ((ts[usable] >= _KEPT_US) & (ts[usable] < 2 * _KEPT_US)).all():
            return None
        ts, dur = np.where(usable, ts, 0.0), np.where(usable, dur, 0.0)
        if not exact and np.abs(ts).max(initial=0.0) >= EXACT_FRACTION_US and _FRACTION.search(text):
            return None
        start, length = nanoseconds(ts) + shift_us * 1000, nanoseconds(dur)
        for at in exact:
            row = rows[at]
            if isinstance(row, ExactEvent) and usable[at]:
                start[at], length[at] = row.ts_ns, row.dur_ns
        return start, start + length, usable

    def _device(
        self, rows: Sequence[Any], kinds: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> None:
        args = [row.args or NO_ARGS for row in rows]
        first = self.devices
        self.collectives += [_collective(first + at, arg) for at, arg in enumerate(args) if arg.collective is not None]
        self.devices += len(rows)
        pairs = list(zip(args, rows, strict=True))
        self.device.append(
            {
                "start": start,
                "end": end,
                "kind": kinds,
                "device": _narrow(_whole([a.device if a.device is not None else r.pid for a, r in pairs], 0), 0),
                "stream": _whole([a.stream if a.stream is not None else r.tid for a, r in pairs], 0),
                "correlation": _whole([arg.correlation for arg in args], m.MISSING),
                "name": self._names(rows),
                "bytes": _whole([m.MISSING if arg.bytes is None else arg.bytes for arg in args], m.MISSING),
            }
        )

    def _host(
        self, rows: Sequence[Any], kinds: NDArray[np.uint8], start: NDArray[np.int64], end: NDArray[np.int64]
    ) -> None:
        threads = self.threads
        kinds = kinds - np.uint8(HOST_KIND)
        correlation = np.full(len(rows), m.MISSING, np.int64)
        # Only calls of the runtime are joined with device events.
        calls = np.flatnonzero(kinds == m.RUNTIME)
        correlation[calls] = _whole([(rows[at].args or NO_ARGS).correlation for at in calls.tolist()], m.MISSING)
        self.host.append(
            {
                "start": start,
                "end": end,
                "kind": kinds,
                "thread": np.array([threads[row.pid, row.tid] for row in rows], np.int32),
                "name": self._names(rows),
                "correlation": correlation,
            }
        )

    def _shaped(self, text: bytes) -> bool:
        """Tell whether a chunk may hold shapes: all operators of a trace are recorded with them, or none."""
        if not self._seen_shapes and self._looked < _LOOKED_FOR_SHAPES:
            self._looked += 1
            # Read event by event, without its text, a chunk can hold anything.
            self._seen_shapes = not text or b'"Input ' in text
        return self._seen_shapes

    def _operators(self, rows: Sequence[Any], shaped: bool) -> None:
        """Add what only some traces record of operators: shapes, and the numbers that join the two passes."""
        table = self.host[-1]
        at = np.flatnonzero(table["kind"] == m.OPERATOR)
        if at.size == 0 or not (shaped or self.modules):
            return
        args = [rows[one].args or NO_ARGS for one in at.tolist()]
        if shaped:
            shapes = self.shapes
            table["shape"] = np.full(len(rows), m.MISSING, np.int32)
            table["shape"][at] = [
                shapes[dims, bytes(arg.types)[:_SHAPE_MOST]]
                if 0 < len(dims := bytes(arg.dims) or bytes(arg.old_dims)) <= _SHAPE_MOST
                else m.MISSING
                for arg in args
            ]
        if self.modules:
            table["sequence"] = np.full(len(rows), m.MISSING, np.int64)
            table["sequence"][at] = _whole([arg.sequence for arg in args], m.MISSING)

    def _names(self, rows: Sequence[Any]) -> NDArray[np.int32]:
        names = self.names
        return np.array([names[row.name] for row in rows], np.int32)

    def tables(self) -> tuple[m.DeviceEvents, m.HostEvents]:
        """Return all columns, joined, in the order of the file."""
        device = {name: _joined(self.device, name) for name in DEVICE_COLUMNS}
        self.device.clear()
        host = {name: _joined(self.host, name) for name in HOST_COLUMNS}
        host |= {name: joined_where(self.host, name) for name in OPERATOR_COLUMNS}
        self.host.clear()
        return m.DeviceEvents(**device), m.HostEvents(**host)


def nanoseconds(us: NDArray[np.float64]) -> NDArray[np.int64]:
    """Round us to whole ns. Exact for whole us up to 2^53 and for fractions up to `EXACT_FRACTION_US`."""
    whole = np.floor(us)
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def _joined(parts: Sequence[dict[str, NDArray[Any]]], name: str) -> NDArray[Any]:
    dtype = DTYPES.get(name, np.int64)
    return np.concatenate([part[name] for part in parts]) if parts else np.empty(0, dtype)


def joined_where(parts: Sequence[Mapping[str, NDArray[Any]]], name: str) -> NDArray[Any]:
    """Join a column that some parts lack; empty where all of them do."""
    dtype = DTYPES.get(name, np.int64)
    if not any(name in part for part in parts):
        return np.empty(0, dtype)
    return np.concatenate(
        [part[name] if name in part else np.full(part["start"].size, m.MISSING, dtype) for part in parts]
    )


def whole_number(value: Any) -> int | None:
    """Return an integer from what a trace gives as a number or as text (`7`, `"7"`, `"stream 7"`), else None."""
    if isinstance(value, str):
        value = value.rpartition(" ")[2][:32]
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if -(1 << 62) < number < 1 << 62 else None


def _whole(values: Sequence[Any], missing: int) -> NDArray[np.int64]:
    """Return whole numbers as a column; fast where they are all plain integers."""
    try:
        found = np.array(values)
        if found.dtype == np.int64:
            return found
    except (ValueError, OverflowError, TypeError):
        pass
    return np.array([missing if (number := whole_number(value)) is None else number for value in values], np.int64)


def _narrow(wide: NDArray[np.int64], missing: int) -> NDArray[np.int32]:
    fits = np.abs(wide) < 1 << 31
    return np.where(fits, wide, missing).astype(np.int32)


def _stream_wait(args: Any) -> m.StreamWait | None:
    """Return what waited for what, or None for a wait of the host, which has no stream to wait on."""
    if args is None:
        return None
    numbers = [whole_number(one) for one in (args.device, args.stream, args.on_stream, args.correlation, args.recorded)]
    if any(one is None or one < 0 for one in numbers):
        return None
    return m.StreamWait(*(one for one in numbers if one is not None))


def _collective(event: int, args: Any) -> m.Collective:
    def text(value: Any) -> str | None:
        return None if value is None else str(value)[:128]

    return m.Collective(
        event=event,
        name=text(args.collective),
        group=text(args.group),
        size=whole_number(args.group_size),
        elements=whole_number(args.elements),
        dtype=text(args.dtype),
        sequence=whole_number(args.number),
        out_elements=whole_number(args.out_elements),
        ranks=None if args.ranks is None else str(args.ranks)[:512],
    )


def thread_name(pid: Any, tid: Any) -> tuple[str, str]:
    """Process and thread as text."""
    return str(pid)[:64], str(tid)[:64]

"""Trace events: what is kept of each, and how they are read one by one where a chunk holds something odd."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from underfed.trace.split import tail_fields

#: Beyond this many us a double no longer holds a fraction of a us to the ns.
EXACT_FRACTION_US = float(1 << 43)


_NO_TEXT = msgspec.Raw(b"")


class OperatorArgs(msgspec.Struct, gc=False):
    """The arguments of an operator that anything here looks at; shapes and types stay text until they are shown."""

    sequence: int | str | float | None = msgspec.field(default=None, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=_NO_TEXT, name="Input Dims")
    old_dims: msgspec.Raw = msgspec.field(default=_NO_TEXT, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=_NO_TEXT, name="Input type")


class WaitArgs(msgspec.Struct, gc=False):
    """The arguments of a stream's wait for an event of another stream."""

    device: int | str | float | None = None
    stream: int | str | float | None = None
    correlation: int | str | float | None = None
    on_stream: int | str | float | None = msgspec.field(default=None, name="wait_on_stream")
    recorded: int | str | float | None = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class Args(OperatorArgs, gc=False):
    """The arguments of any event that anything here looks at."""

    device: int | str | float | None = None
    stream: int | str | float | None = None
    correlation: int | str | float | None = None
    bytes: int | str | float | None = None
    collective: int | str | float | None = msgspec.field(default=None, name="Collective name")
    group: int | str | float | None = msgspec.field(default=None, name="Process Group Name")
    group_size: int | str | float | None = msgspec.field(default=None, name="Group size")
    elements: int | str | float | None = msgspec.field(default=None, name="In msg nelems")
    dtype: int | str | float | None = None
    number: int | str | float | None = msgspec.field(default=None, name="Seq")
    out_elements: int | str | float | None = msgspec.field(default=None, name="Out msg nelems")
    ranks: int | str | float | list[Any] | None = msgspec.field(default=None, name="Process Group Ranks")
    on_stream: int | str | float | None = msgspec.field(default=None, name="wait_on_stream")
    recorded: int | str | float | None = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event; times in us as the profiler writes them."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float = math.nan
    dur: float = math.nan
    args: Args | None = None


_NEXT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|args|id|s|dur)"')
_SCALAR = (int, float, str)


class ExactEvent(Event, gc=False):
    """An event whose times were read as decimal text, because a double would not hold them; times in ns."""

    ts_ns: int = 0
    dur_ns: int = 0


class Patient:
    """Reads events one at a time, skips what is broken, and counts it."""

    def __init__(self) -> None:
        self.broken = 0
        self.ended = False
        self._decoder = json.JSONDecoder(strict=False, parse_float=_number, parse_int=_whole)

    def read(self, text: bytes, last: bool) -> tuple[list[Event], bytes, dict[str, Any]]:
        """Return the whole events, the bytes of an event that goes on behind this text, and fields behind the list."""
        string = text.decode("utf-8", "surrogateescape")
        events: list[Event] = []
        at, size = 0, len(string)
        while True:
            while at < size and string[at] in ", \t\r\n":
                at += 1
            if at >= size:
                return events, b"", {}
            if string[at] == "]":
                self.ended = True
                return events, b"", tail_fields(string[at + 1 :].encode("utf-8", "surrogateescape")) or {}
            try:
                raw, end = self._decoder.raw_decode(string, at)
            except (ValueError, RecursionError, InvalidOperation) as error:
                if _unfinished(error, size):
                    rest = b"" if last else string[at:].encode("utf-8", "surrogateescape")
                    return events, rest, {}
                self.broken += 1
                following = _NEXT.search(string, at + 1)
                if following is None:
                    return events, b"", {}
                at = following.start()
                continue
            if isinstance(raw, dict):
                events.append(_event(raw))
            else:
                self.broken += 1
            at = end


def _unfinished(error: Exception, size: int) -> bool:
    """Tell whether decoding failed because the text ends inside the event, and not because of what it says."""
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.pos >= size - 1 or error.msg.startswith("Unterminated string")


def _number(text: str) -> float | Decimal:
    value = float(text)
    return value if abs(value) < EXACT_FRACTION_US else Decimal(text[:64])


def _whole(text: str) -> int | float:
    # Longer digits than any field needs: int() of millions of them would take minutes.
    return int(text) if len(text) <= 40 else math.inf


def _scalar(value: Any) -> int | str | float | None:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, _SCALAR) and not isinstance(value, bool) else None


def _time(value: Any) -> tuple[float, int | None]:
    """Return us, and ns where us as a double would lose some."""
    if isinstance(value, str):
        try:
            value = Decimal(value.strip()[:64])
        except InvalidOperation:
            return math.nan, None
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return math.nan, None
    try:
        us = float(value)
        exact = math.isfinite(us) and abs(us) >= EXACT_FRACTION_US and abs(us) < 1e16
        return us, round(Decimal(value) * 1000) if exact else None
    except (OverflowError, InvalidOperation):
        return math.nan, None


def _text(value: Any) -> str:
    return (
        value.encode("utf-8", "replace").decode()
        if isinstance(value, str)
        else ""
        if value is None
        else str(value)[:64]
    )


def _event(raw: dict[Any, Any]) -> Event:
    args = raw.get("args")
    found = NO_ARGS
    if isinstance(args, dict):
        names = zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True)
        plain_args: dict[str, Any] = {field: _scalar(args.get(key)) for field, key in names if field not in _TEXTS}
        plain_args |= {field: _as_text(args.get(key)) for field, key in _TEXTS.items()}
        found = Args(**plain_args)
        if isinstance(args.get("Process Group Ranks"), list):
            found.ranks = str(args["Process Group Ranks"])[:512]
    ts, ts_ns = _time(raw.get("ts"))
    dur, dur_ns = _time(raw.get("dur"))
    plain: dict[str, Any] = {
        "ph": _text(raw.get("ph")),
        "cat": _text(raw.get("cat")),
        "name": _text(raw.get("name")),
        "pid": _ident(raw.get("pid")),
        "tid": _ident(raw.get("tid")),
        "ts": ts,
        "dur": dur,
        "args": found,
    }
    if ts_ns is None and dur_ns is None:
        return Event(**plain)
    whole = (value if value is not None else _ns(us) for us, value in ((ts, ts_ns), (dur, dur_ns)))
    return ExactEvent(**plain, ts_ns=next(whole), dur_ns=next(whole))


#: Arguments that are kept as text.
_TEXTS = {"dims": "Input Dims", "old_dims": "Input dims", "types": "Input type"}


def _as_text(value: Any) -> msgspec.Raw:
    if not isinstance(value, list):
        return _NO_TEXT
    try:
        return msgspec.Raw(json.dumps(value, default=float).encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError, TypeError):
        return _NO_TEXT


def _ns(us: float) -> int:
    return round(us * 1000) if abs(us) < 1e16 else 0


def _ident(value: Any) -> int | str | None:
    scalar = _scalar(value)
    return str(scalar) if isinstance(scalar, float) else scalar

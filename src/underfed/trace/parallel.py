"""Reads one large trace in several processes: each inflates the whole file and decodes every n-th chunk of it.

Inflating costs a tenth of decoding, so that is cheaper than sending text around. A chunk that is not as a profiler
writes it ends the attempt, and the file is read by one process instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from underfed.errors import MeasurementError
from underfed.trace.columns import Columns
from underfed.trace.heap import keep_freed_memory
from underfed.trace.source import Source, shown
from underfed.trace.split import NotATraceError, Splitter

#: Bytes of a file from which a second process saves more than its start costs: plain, and gzip at its usual 12 to 1.
LARGE_PLAIN, LARGE_GZIP = 64 << 20, 5 << 20
#: Chunks that one process decodes while another starts.
HEAD_START = 60


@dataclass
class Share:
    """What one process read: its columns, chunk by chunk, and what the last chunk and the file said."""

    columns: Columns
    fields: dict[str, Any]
    limits: list[str]
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """Tables of devices and of the host that each of its chunks gave, in order."""


def large(path: Path) -> bool:
    """Tell whether several processes are worth it."""
    try:
        size = path.stat().st_size
    except OSError:
        return False
    return size >= (LARGE_GZIP if path.suffix == ".gz" else LARGE_PLAIN)


def owner(chunk: int, number: int, head_start: int) -> int:
    """Which of `number` processes decodes a chunk: the first one begins while the others still start."""
    return max(0, chunk - head_start) % number


def read_share(path: str, index: int, number: int, head_start: int) -> Share | None:
    """Decode the chunks that `owner` gives to `index`; None where one of them needs patience."""
    from underfed.trace.kineto import uncollected

    keep_freed_memory()
    with uncollected():
        return _read_share(path, index, number, head_start)


def _read_share(path: str, index: int, number: int, head_start: int) -> Share | None:
    from underfed.trace.kineto import Reader, has_modules

    source = Source(Path(path))
    splitter = Splitter(source, lambda at: owner(at, number, head_start) == index)
    reader = Reader()
    share = Share(reader.columns, {}, source.limits)
    try:
        for at, (text, ending) in enumerate(splitter.chunks()):
            before = len(reader.columns.device), len(reader.columns.host)
            reader.columns.modules = has_modules(splitter.head)
            if owner(at, number, head_start) == index and not reader.quickly(text, ending):
                return None
            share.chunks.append((len(reader.columns.device) - before[0], len(reader.columns.host) - before[1]))
    except NotATraceError:
        return None
    share.fields = {**splitter.head, **reader.tail}
    return share


def read_shares(path: Path, number: int) -> tuple[Columns, dict[str, Any], list[str]] | None:
    """Read a file in `number` processes, this one included; None where it has to be read by one.

    Raises MeasurementError where a process was killed.
    """
    try:
        with ProcessPoolExecutor(number - 1, mp_context=get_context("spawn")) as pool:
            waiting = [pool.submit(read_share, str(path), index, number, HEAD_START) for index in range(1, number)]
            shares = [read_share(str(path), 0, number, HEAD_START), *(one.result() for one in waiting)]
    except BrokenProcessPool:
        raise MeasurementError(
            f"a process that read {shown(path)} was killed, most likely for memory: free some, or read it elsewhere"
        ) from None
    whole = [share for share in shares if share is not None]
    if len(whole) < number or len({len(share.chunks) for share in whole}) > 1:
        return None
    fields: dict[str, Any] = {}
    for share in whole:
        fields.update(share.fields)
    return joined(whole, HEAD_START), fields, whole[0].limits


@dataclass
class _Place:
    """How far a share has been taken: its tables, its device events, its collectives."""

    device: int = 0
    host: int = 0
    event: int = 0
    collective: int = 0


def joined(shares: Sequence[Share], head_start: int) -> Columns:
    """Put the shares' chunks back into the order of the file."""
    columns = Columns()
    renamed = [_numbers(columns.names, share.columns.names) for share in shares]
    threads = [_numbers(columns.threads, share.columns.threads) for share in shares]
    shapes = [_numbers(columns.shapes, share.columns.shapes) for share in shares]
    places = [_Place() for _ in shares]
    for at in range(len(shares[0].chunks)):
        index = owner(at, len(shares), head_start)
        share, place = shares[index], places[index]
        devices, hosts = share.chunks[at]
        for table in share.columns.device[place.device : place.device + devices]:
            by = columns.devices - place.event
            place.event += table["start"].size
            found = share.columns.collectives
            while place.collective < len(found) and found[place.collective].event < place.event:
                one = found[place.collective]
                columns.collectives.append(replace(one, event=one.event + by))
                place.collective += 1
            columns.device.append({**table, "name": renamed[index][table["name"]]})
            columns.devices += table["start"].size
        for table in share.columns.host[place.host : place.host + hosts]:
            moved = {"name": renamed[index][table["name"]], "thread": threads[index][table["thread"]]}
            if "shape" in table:
                moved["shape"] = np.where(table["shape"] < 0, -1, shapes[index][table["shape"]]).astype(np.int32)
            columns.host.append({**table, **moved})
        place.device, place.host = place.device + devices, place.host + hosts
    for share in shares:
        columns.waits += share.columns.waits
        columns.events += share.columns.events
        columns.backwards += share.columns.backwards
        columns.unusable += share.columns.unusable
    return columns


def _numbers(all_keys: dict[Any, int], keys: dict[Any, int]) -> NDArray[np.int32]:
    return np.array([all_keys[key] for key in keys], np.int32)

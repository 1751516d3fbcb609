"""What was seen, as JSON: written where it was seen, by the standard library alone, and read back here.

Stacks repeat: frames and stacks go into tables once, and samples are numbers.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from underfed.observe.live.stacks import Frame, Sampling, ThreadStacks
from underfed.observe.live.window import Seen


def pack(seen: Seen) -> dict[str, Any]:
    """Return what was seen as lists, objects, texts and numbers."""
    names = [field.name for field in dataclasses.fields(seen) if field.name not in _OWN]
    found = {name: _plain(getattr(seen, name)) for name in names}
    found["sources"] = [[file, line, text] for (file, line), text in seen.sources.items()]
    found["sampling"] = _pack_sampling(seen.sampling)
    found["holding"] = _pack_sampling(seen.holding) if seen.holding is not None else None
    return found


_OWN = frozenset({"sources", "sampling", "holding"})


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return value


def plain_record(value: Any) -> Any:
    """Return a record without msgspec, with all that it holds, as plain data."""
    if isinstance(value, dict):
        return {key: plain_record(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_record(one) for one in value]
    names = getattr(type(value), "__annotations__", None)
    return {name: plain_record(getattr(value, name)) for name in names} if names else value


def _pack_sampling(sampling: Sampling) -> dict[str, Any]:
    frames: dict[Frame, int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    threads = []
    for thread in sampling.threads:
        rows = []
        for stack in thread.samples:
            key = tuple(frames.setdefault(frame, len(frames)) for frame in stack)
            rows.append(stacks.setdefault(key, len(stacks)))
        threads.append([thread.pid, thread.tid, thread.name, rows, thread.torn])
    return {
        "frames": [list(frame) for frame in frames],
        "stacks": [list(stack) for stack in stacks],
        "threads": threads,
        "rate": sampling.rate,
        "cpu_s": sampling.cpu_s,
        "errors": sampling.errors,
        "reason": sampling.reason,
    }


def unpack(data: dict[str, Any]) -> Seen:
    """Return what was seen elsewhere. Raises ValueError where the data is none of ours."""
    import msgspec

    try:
        rest = {name: value for name, value in data.items() if name not in _OWN}
        empty = Sampling([], 0, 0.0, 0, None)
        bare = msgspec.convert(
            {**rest, "sources": {}, "sampling": list(empty), "holding": None}, Seen, dec_hook=_hook, str_keys=True
        )
        sources = {(str(file), int(line)): str(text) for file, line, text in data["sources"]}
        holding = data["holding"]
        return dataclasses.replace(
            bare,
            sources=sources,
            sampling=_unpack_sampling(data["sampling"]),
            holding=_unpack_sampling(holding) if holding is not None else None,
        )
    except (msgspec.ValidationError, KeyError, TypeError, IndexError) as error:
        raise ValueError(f"what came back is none of ours ({error})") from error


def _hook(kind: Any, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is Counter:
        return Counter({str(name): int(count) for name, count in value.items()})
    raise NotImplementedError


def _unpack_sampling(data: dict[str, Any]) -> Sampling:
    frames = [Frame(str(name), str(file), int(line)) for name, file, line in data["frames"]]
    stacks = [tuple(frames[_within(at, frames)] for at in row) for row in data["stacks"]]
    threads = [
        ThreadStacks(
            None if pid is None else int(pid),
            None if tid is None else int(tid),
            str(name),
            [stacks[_within(at, stacks)] for at in rows],
            int(torn),
        )
        for pid, tid, name, rows, torn in data["threads"]
    ]
    reason = data["reason"]
    return Sampling(
        threads, int(data["rate"]), float(data["cpu_s"]), int(data["errors"]), None if reason is None else str(reason)
    )


def _within(at: Any, table: list[Any]) -> int:
    if not isinstance(at, int) or not 0 <= at < len(table):
        raise IndexError(at)
    return at

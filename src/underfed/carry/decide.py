"""What is to be done with one run: nothing, copy, repair, replace, keep out, or refuse."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from underfed.carry.hashing import hash_file
from underfed.carry.manifest import Manifest
from underfed.carry.names import shown
from underfed.carry.store import CarryError, Held, RunPlace
from underfed.carry.take import Source

#: Files that are read at once: more than there are CPUs get into each other's way.
READERS = max(2, min(4, os.cpu_count() or 2))

Verdict = Literal["carry", "kept-out", "conflict"]


@dataclass
class Comparison:
    """A run's source against what the destination holds."""

    manifest: Manifest | None
    withdrawn: Manifest | None
    held: dict[str, Held]
    source_hash: dict[str, str] = field(default_factory=dict)
    held_hash: dict[str, str] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    problem: str | None = None

    @property
    def old(self) -> Manifest | None:
        """What stood here before, if that was ever whole."""
        return self.manifest or self.withdrawn


def compare(files: dict[str, Source], place: RunPlace) -> Comparison:
    """Read both sides as far as it takes to know which files are equal. Raises CarryError."""
    manifest, problem = place.manifest()
    held = {path: found for path in files if (found := place.held(path)) is not None}
    result = Comparison(manifest, place.withdrawn(), held, problem=problem)
    known = manifest.entries if manifest else {}
    same_size = [path for path, at in held.items() if at.size == files[path].size]
    referred = [path for path in files if path in known and known[path].size == files[path].size]
    result.source_hash = _each(sorted({*same_size, *referred}), lambda path: hash_source(files[path]))
    result.held_hash = _each(same_size, place.digest)
    for path in files:
        mine, theirs = result.source_hash.get(path), result.held_hash.get(path)
        if path in known:
            same = mine is not None and mine == known[path].blake3
        else:
            same = path not in held or (mine is not None and mine == theirs)
        if not same:
            result.differing.append(path)
        if mine is None or mine != theirs:
            result.todo.append(path)
    return result


def hash_source(source: Source) -> str:
    """Hash a source file. Raises CarryError when it cannot be read or is not what was listed."""
    try:
        digest, length = hash_file(os.path.realpath(source.real))
    except OSError as error:
        raise CarryError(f"{shown(source.path)}: {error.strerror}") from error
    if length != source.size:
        raise CarryError(f"{shown(source.path)}: still growing", changed=True)
    return digest


def verdict(found: Comparison, time_ns: int, markers: Iterable[str], *, force: bool) -> tuple[Verdict, str]:
    """Decide between a source of this time, in ns, and what is held; the text says why."""
    if not found.differing:
        return "carry", "unchanged" if not found.todo else ("completed" if found.held else "new")
    theirs = held_time(found, markers)
    if theirs is None:
        order = "the destination does not say which is newer"
    elif same_time(time_ns, theirs):
        order = "both have the same time"
    elif time_ns > theirs:
        return "carry", "replaced an older result"
    else:
        return "kept-out", f"the destination's result is newer by {_span(theirs - time_ns)}"
    if force:
        return "carry", "replaced by --force"
    path = found.differing[0]
    mine, other = found.source_hash.get(path, "another size"), found.held_hash.get(path, "another size")
    return "conflict", (
        f"{order}, and {len(found.differing)} of its files have other bytes, such as {shown(path)}: "
        f"source {mine}, destination {other}; nothing was overwritten; --force takes the source's"
    )


def held_time(found: Comparison, markers: Iterable[str]) -> int | None:
    """Return the time, in ns, that decides how new the held run is, or None if nothing says."""
    if found.manifest:
        return found.manifest.time_ns
    times = [at.mtime_ns for path in markers if (at := found.held.get(path)) and at.mtime_ns is not None]
    if times:
        return max(times)
    if found.withdrawn:
        return found.withdrawn.time_ns
    return max((at.mtime_ns for at in found.held.values() if at.mtime_ns is not None), default=None)


def same_time(mine: int, theirs: int) -> bool:
    """Say whether two times in ns are one: file systems cut times to 100 ns, microseconds or seconds."""
    return any(theirs == mine // grain * grain for grain in (1, 100, 1_000, 1_000_000_000))


def _span(ns: int) -> str:
    seconds = ns / 1e9
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def _each(paths: list[str], work: Callable[[str], str]) -> dict[str, str]:
    with ThreadPoolExecutor(READERS) as pool:
        return dict(zip(paths, pool.map(work, paths), strict=True))

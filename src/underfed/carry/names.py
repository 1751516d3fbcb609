"""Names as the carry commands show them, and the names that are theirs."""

from __future__ import annotations

import os

#: A run's manifest, in its folder in the destination.
MANIFEST = "underfed-manifest.jsonl"
#: The manifest of what stood here before the files that are being replaced now.
WITHDRAWN = MANIFEST + ".withdrawn"
#: Files on their way in; never a final name.
INCOMING = ".underfed-incoming"
#: The write probe's folder.
PROBE = ".underfed-probe"
#: Files that a newer run no longer has.
REPLACED = ".replaced"

#: Names that are never part of a run.
OURS = frozenset({MANIFEST, WITHDRAWN, INCOMING, PROBE, REPLACED})


def shown(name: str | bytes | os.PathLike[str]) -> str:
    """Return a name fit for one line of a terminal: control characters and undecodable bytes escaped."""
    text = os.fsdecode(name)
    if text and all(c.isprintable() for c in text):
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)


def size_text(count: float) -> str:
    """Return a number of bytes with a unit, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def plural(count: int, word: str) -> str:
    """Return `1 file`, `2 files`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"

"""What `read` tells beside the diagnosis: how far it is, and everything that was counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from underfed.errors import UsageError
from underfed.timeline.facts import TraceFacts
from underfed.trace.late import ranks_of, skew_between
from underfed.trace.many import Progress
from underfed.trace.source import shown

FACTS_SCHEMA = "underfed.facts/1"
#: Fewer files than this are read before a bar is worth looking at.
_WORTH_A_BAR = 4


def progress_bar() -> Progress | None:
    """Return what shows on stderr how many files are read, where that is a terminal; else None."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return None

    def show(done: int, of: int) -> None:
        if of < _WORTH_A_BAR:
            return
        width = 30 * done // of
        end = "\r\x1b[K" if done == of else "\r"
        sys.stderr.write(f"\rreading traces {'#' * width}{'.' * (30 - width)} {done} of {of}{end}")
        sys.stderr.flush()

    return show


def write_facts(path: Path, facts: Sequence[TraceFacts]) -> None:
    """Write the facts of all ranks, and what they say of each other, as JSON; raises UsageError where that fails.

    All times are ns. Single collectives, which can be millions, are left out.
    """
    ranks, _ = ranks_of(facts)
    skew, _, limits = skew_between(facts, ranks)
    entries = []
    for one, rank in zip(facts, ranks, strict=True):
        entry: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(one, log=None))
        del entry["log"]
        entries.append({**entry, "rank": one.rank if len(facts) == 1 else rank})
    document = {"schema": FACTS_SCHEMA, "ranks": entries, "skew": skew, "limits": limits}
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    except OSError as error:
        raise UsageError(f"read: cannot write {shown(path)}: {error.strerror or error}") from None

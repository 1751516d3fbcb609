"""Our own lines on stderr, written so that no state of the standard streams can hurt the command or mislead a line."""

from __future__ import annotations

import contextlib
import io
import os
import sys


def plug_closed_streams() -> None:
    """Occupy closed descriptors 0 to 2 of this process with /dev/null, closed again for every program it starts.

    Without this a file of ours could land on descriptor 2 and take whatever a library writes to stderr.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # noqa: PERF203
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)  # the lowest free number, that is this one
    if sys.stderr is None:  # print(file=None) would go to stdout
        sys.stderr = io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8")


def say(text: str) -> None:
    """Write one line of ours to stderr; a closed, full or broken stderr is no reason to stop anything."""
    line = f"underfed: {printable(text)}\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Return the text with control characters and undecodable bytes escaped, so that a name cannot drive a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text)

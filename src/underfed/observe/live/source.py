"""The source lines at which the user's code was seen, read from the files as they are now."""

from __future__ import annotations

import os
import stat
from collections import Counter

from underfed.observe.live.stacks import Frame, Sampling

#: A script is smaller; a file that is not is no script.
_MOST_BYTES = 4 << 20
_MOST_FILES = 50
_MOST_LINE = 200


def lines_of(sampling: Sampling, pid: int) -> dict[tuple[str, int], str]:
    """Return the text of each line on which a frame of the user's own was innermost of its kind, most seen first."""
    wanted: Counter[str] = Counter()
    frames: set[Frame] = set()
    for thread in sampling.threads:
        for stack in set(thread.samples):
            user = next((frame for frame in stack if frame.user), None)
            if user is not None and not user.file.startswith("<"):
                frames.add(user)
                wanted[user.file] += 1
    texts = {file: _read(file, thread_pid(sampling, file) or pid) for file, _ in wanted.most_common(_MOST_FILES)}
    found = {}
    for frame in frames:
        known = texts.get(frame.file) or []
        if 0 < frame.line <= len(known):
            found[frame.file, frame.line] = known[frame.line - 1].strip()[:_MOST_LINE]
    return found


def thread_pid(sampling: Sampling, file: str) -> int | None:
    """Return a process that was seen in a file: it can have another root folder than the one that was asked for."""
    for thread in sampling.threads:
        if any(frame.file == file for stack in set(thread.samples) for frame in stack):
            return thread.pid
    return None


def _read(file: str, pid: int) -> list[str] | None:
    """Return a file's lines as the process sees it; None where it cannot be read or is no regular file."""
    inside = file if file.startswith("/") else None
    tries = [f"/proc/{pid}/root{inside}", inside] if inside else [f"/proc/{pid}/cwd/{file}"]
    for path in tries:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            continue
        try:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode) or known.st_size > _MOST_BYTES:
                return None
            return os.read(descriptor, _MOST_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return None
        finally:
            os.close(descriptor)
    return None

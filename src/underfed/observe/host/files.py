"""Small files of /proc and /sys: read in one system call, parsed without ever raising."""

from __future__ import annotations

import os
from pathlib import Path

#: More than the longest of these files that is read here (mountinfo on a machine with thousands of container layers).
_MOST = 4 << 20
_CHUNK = 1 << 16


def base(root: Path | str) -> str:
    """Return `root` without a trailing slash: '' for '/', so that `base + '/proc'` is right for both."""
    return os.fspath(root).rstrip("/")


def text(path: str) -> str | None:
    """Return a file's text, undecodable bytes replaced; None where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        first = os.read(descriptor, _CHUNK)
        parts, size = [first], len(first)
        # /proc hands out at most a page a read, so only an empty read is the end
        while parts[-1] and size < _MOST:
            parts.append(os.read(descriptor, _CHUNK))
            size += len(parts[-1])
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def integer(word: str | None) -> int | None:
    """Return a word as an int; None for anything else, `max` included."""
    # the kernel writes plain ASCII digits; int() alone would also take '1_0' and other scripts' digits
    word = word.strip() if word else ""
    digits = word[1:] if word[:1] == "-" else word
    return int(word) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def real(word: str | None) -> float | None:
    """Return a word as a finite float; None for anything else."""
    word = word.strip() if word else ""
    if not word.isascii() or not word.replace(".", "", 1).isdigit() or len(word) > 30:
        return None
    return float(word)


def number(path: str) -> int | None:
    """Return the one integer that a file holds; None where there is none."""
    return integer(text(path))


def table(path: str) -> dict[str, int]:
    """Return the `name value` and `name: value unit` lines of a file whose value is an integer; {} where unreadable."""
    found: dict[str, int] = {}
    for line in (text(path) or "").splitlines():
        words = line.split()
        if len(words) >= 2 and (value := integer(words[1])) is not None:
            found[words[0].rstrip(":")] = value
    return found


def list_size(ranges: str | None) -> int | None:
    """Return how many numbers a kernel list such as `0-3,8` names; None where it is not such a list or empty."""
    numbers = list_numbers(ranges)
    return len(numbers) if numbers else None


def list_numbers(ranges: str | None) -> set[int]:
    """Return the numbers that a kernel list such as `0-3,8` names; empty where it is not such a list."""
    found: set[int] = set()
    for part in (ranges or "").strip().split(","):
        first, _, last = part.partition("-")
        low, high = integer(first), integer(last or first)
        if low is None or high is None or not 0 <= low <= high < 1 << 16:
            return set()
        found.update(range(low, high + 1))
    return found


def field(content: str | None, name: str) -> str | None:
    """Return what follows `name:` at a line's start, as /proc/PID/status has it; None where it is absent."""
    if content is None:
        return None
    mark = "\n" + name + ":"
    at = ("\n" + content).find(mark)
    if at < 0:
        return None
    return content[at + len(mark) - 1 :].partition("\n")[0].strip()

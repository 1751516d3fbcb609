"""Which files may hold stamps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from underfed.carry.names import shown
from underfed.errors import UsageError

#: Text that people write facts in.
SUFFIXES = frozenset(
    {
        ".md",
        ".markdown",
        ".rst",
        ".yaml",
        ".yml",
        ".toml",
        ".json",
        ".py",
        ".pyi",
        ".sh",
        ".bash",
        ".txt",
        ".cfg",
        ".ini",
    }
)
_NAMES = frozenset({"Makefile", "Dockerfile", "README", "LICENSE", "NOTES", "CHANGELOG"})
_PASSED_BY = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist"})
_LARGEST = 8 << 20


def text_files(paths: list[Path]) -> Iterator[Path]:
    """Give the text files that are named or lie below a named folder; hidden folders below it are passed by.

    Raises UsageError for a path that is not there.
    """
    for path in paths:
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from _below(path)
        else:
            raise UsageError(f"stale: {shown(path)}: no such file or folder")


def _below(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _PASSED_BY)
        for name in sorted(files):
            path = Path(at) / name
            if (path.suffix.lower() in SUFFIXES or name in _NAMES) and path.is_file() and not path.is_symlink():
                yield path


def read_text(path: Path) -> str | None:
    """Return a file's text, or None if it is binary or larger than anything that people write."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"stale: {shown(path)}: {error.strerror}") from error
    return None if b"\0" in data else data.decode("utf-8", "replace")

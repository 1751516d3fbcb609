"""Which files are read, and how bytes become text. Nothing is run, imported or followed out of the tree."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterator
from pathlib import Path

from underfed.errors import UsageError
from underfed.report.text import clean

#: Larger files are data or generated; people do not write them.
LARGEST = 2_000_000
#: Pictures are kept in them, line by line of base64 or as one.
LARGEST_NOTEBOOK = 50_000_000
LONGEST_LINE = 200_000
_PASSED_BY = frozenset(
    {"__pycache__", "node_modules", "site-packages", "dist-packages", "build", "dist", "venv", "env", "tests", "test"}
)


def source_files(paths: list[Path], exclude: tuple[str, ...] = ()) -> Iterator[Path]:
    """Give the Python files and notebooks that are named or lie below a named folder, sorted, each once.

    Below a folder, links, hidden and virtual-environment folders and tests are passed by. Raises UsageError for a path
    that is not there.
    """
    seen: set[Path] = set()
    for path in paths:
        if path.is_dir():
            found: Iterator[Path] = _below(path)
        elif path.exists():
            found = iter([path])
        else:
            raise UsageError(f"audit: {clean(str(path))}: no such file or folder")
        for file in found:
            if file not in seen and not any(file.match(glob) for glob in exclude):
                seen.add(file)
                yield file


def _below(folder: Path) -> Iterator[Path]:
    for at, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files and Path(at) != folder:
            folders.clear()
            continue
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _PASSED_BY)
        for name in sorted(files):
            path = Path(at) / name
            if not name.endswith((".py", ".ipynb")) or name.startswith("test_") or name == "conftest.py":
                continue
            if path.is_file() and not path.is_symlink():
                yield path


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes; raises ValueError with a reason that fits one line."""
    try:
        if not path.is_file():
            raise ValueError("is not a regular file")
        largest = LARGEST if path.suffix != ".ipynb" else LARGEST_NOTEBOOK
        if path.stat().st_size > largest:
            raise ValueError(f"is larger than {largest // 1_000_000} MB")
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def decode(data: bytes) -> tuple[str, str]:
    """Return source text and the encoding to write it back with; raises ValueError with a reason."""
    if b"\0" in data:
        raise ValueError("holds null bytes")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"cannot be decoded: {clean(str(error))[:120]}") from error
    return text, encoding


def refuse_long_lines(source: str) -> None:
    """Raise ValueError for source with a line that nobody wrote."""
    if max(map(len, source.split("\n")), default=0) > LONGEST_LINE:
        raise ValueError(f"has a line of more than {LONGEST_LINE:,} characters")

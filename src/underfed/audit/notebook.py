"""Notebooks: the code cells as one module, and the way back from its lines to cells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Cell:
    """A code cell: its number among all cells, its first line in the module (both from 1), and how many it has."""

    number: int
    first: int
    lines: int


@dataclass(frozen=True)
class Notebook:
    """A notebook's document, its module and the cells in it."""

    document: dict[str, Any]
    source: str
    cells: tuple[Cell, ...]

    def place(self, line: int) -> tuple[int, int]:
        """Return the cell and the line in it (both from 1) of a line of the module."""
        cell = max((c for c in self.cells if c.first <= line), key=lambda c: c.first, default=Cell(1, 1, 0))
        return cell.number, line - cell.first + 1


def read_notebook(text: str) -> Notebook:
    """Read a notebook; raises ValueError with a reason. Magics and shell lines become comments of the same length."""
    try:
        document = json.loads(text)
        cells = document["cells"]
        if not isinstance(cells, list):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("is not a notebook") from None
    parts: list[str] = []
    found: list[Cell] = []
    line = 1
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        body = _quiet(source_of(cell))
        if body is None:
            continue
        body = body if body.endswith("\n") else body + "\n"
        found.append(Cell(number, line, body.count("\n")))
        parts.append(body)
        line += body.count("\n")
    return Notebook(document, "".join(parts), tuple(found))


def source_of(cell: dict[str, Any]) -> str:
    """Return a cell's source, which is one text or a list of lines."""
    source = cell.get("source", "")
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _quiet(body: str) -> str | None:
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    first = next((line.lstrip() for line in body.split("\n") if line.strip()), "")
    if first.startswith("%%") and not first.startswith(("%%time", "%%capture")):
        return None  # another language
    lines = body.split("\n")
    for at, line in enumerate(lines):
        bare = line.lstrip()
        if bare.startswith(("%", "!", "?")) or bare.rstrip().endswith("?"):
            before = next((part for part in reversed(lines[:at]) if part.strip()), "")
            if bare.startswith("%") and before.rstrip().endswith(("\\", "(", ",", "+", "=")):
                continue  # the second half of an expression
            lines[at] = line[: len(line) - len(bare)] + "0" + "#" * (len(bare) - 1)  # same length: offsets hold
    return "\n".join(lines)


def write_notebook(book: Notebook, fixed: dict[int, str], *, original: str) -> str:
    """Return the notebook's text with the sources of some cells replaced, in the layout that it had."""
    document = book.document
    for number, body in fixed.items():
        cell = document["cells"][number - 1]
        cell["source"] = body.splitlines(keepends=True) if isinstance(cell.get("source"), list) else body
    head = original.split("\n", 2)
    indent = len(head[1]) - len(head[1].lstrip()) if len(head) > 1 else None
    text = json.dumps(document, indent=indent or None, ensure_ascii=original.isascii())
    return text + ("\n" if original.endswith("\n") else "")

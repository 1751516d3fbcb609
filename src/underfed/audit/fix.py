"""Applies fixes: no two that touch, re-parsed before anything is written, written whole or not at all."""

from __future__ import annotations

import difflib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from underfed.audit.finding import AuditFinding, Edit
from underfed.audit.notebook import source_of, write_notebook
from underfed.audit.sources import Source, parse
from underfed.errors import UsageError
from underfed.report.text import clean


@dataclass(frozen=True)
class Fixed:
    """A file's new text, and the findings that it settles."""

    source: Source
    text: str
    findings: tuple[AuditFinding, ...]

    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = self.source.text.splitlines(keepends=True), self.text.splitlines(keepends=True)
        name = clean(self.source.shown)
        lines = difflib.unified_diff(before, after, f"a/{name.lstrip('/')}", f"b/{name.lstrip('/')}")
        return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def plan(sources: Iterable[Source], findings: Iterable[AuditFinding], *, unsafe: bool) -> list[Fixed]:
    """Return the new texts; fixes that overlap an earlier one wait for the next run."""
    by_path: dict[str, list[AuditFinding]] = defaultdict(list)
    for finding in findings:
        if finding.fix is not None and (finding.fix.safe or unsafe):
            by_path[finding.path].append(finding)
    found = []
    for source in sources:
        fixed = _one(source, by_path.get(source.shown, []))
        if fixed is not None:
            found.append(fixed)
    return found


def _one(source: Source, findings: Sequence[AuditFinding]) -> Fixed | None:
    taken: list[Edit] = []
    done: list[AuditFinding] = []
    for finding in findings:
        edits = finding.fix.edits if finding.fix else ()
        if not edits or any(_touch(edit, other) for edit in edits for other in taken):
            continue
        try:
            parse(source.shown, "fixed", _apply(source.module.source, [*taken, *edits]))
        except ValueError:
            continue
        taken += edits
        done.append(finding)
    if not done:
        return None
    text = _apply(source.module.source, taken)
    if source.notebook is None:
        return Fixed(source, text, tuple(done))
    return _notebook(source, taken, done)


def _touch(one: Edit, other: Edit) -> bool:
    return one.start <= other.end and other.start <= one.end


def _apply(text: str, edits: Iterable[Edit]) -> str:
    for edit in sorted(edits, key=lambda e: e.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _notebook(source: Source, edits: Sequence[Edit], done: Sequence[AuditFinding]) -> Fixed | None:
    book, module = source.notebook, source.module
    if book is None:
        return None
    changed: dict[int, list[Edit]] = defaultdict(list)
    for edit in edits:
        number, _ = book.place(module.position(edit.start)[0])
        cell = next(c for c in book.cells if c.number == number)
        start = module.offset(cell.first, 0)
        changed[number].append(Edit(edit.start - start, edit.end - start, edit.text))
    texts = {}
    for number, own in changed.items():
        body = source_of(book.document["cells"][number - 1])
        if "\r" in body:
            return None
        texts[number] = _apply(body, own)  # magics became comments of the same length, so offsets hold
    return Fixed(source, write_notebook(book, texts, original=source.text), tuple(done))


def write(fixed: Fixed) -> None:
    """Write a file's new text beside it and put it in its place; raises UsageError where that fails."""
    path = fixed.source.path
    try:
        real = Path(os.path.realpath(path))
        data = fixed.text.encode(fixed.source.encoding)
        handle, name = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).chmod(real.stat().st_mode & 0o7777)
            Path(name).replace(real)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(f"audit: {clean(str(path))}: cannot be written: {error}") from error

"""Source files read and parsed, with those beside them that they import."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from underfed.audit.files import decode, read_bytes, refuse_long_lines, source_files
from underfed.audit.finding import Result, Unread
from underfed.audit.module import Module
from underfed.audit.notebook import Notebook, read_notebook
from underfed.audit.pause import collector_paused

_MOST_CONTEXT = 200


@dataclass
class Source:
    """A file that was read: its module, and how to write it back."""

    path: Path
    shown: str
    module: Module
    text: str
    encoding: str
    notebook: Notebook | None = None


def load(paths: Sequence[Path], exclude: tuple[str, ...] = ()) -> tuple[list[Source], Result]:
    """Read and parse all source files of some paths.

    By one process: handing a tree over from another takes about as long as parsing it again.
    """
    result = Result()
    sources: list[Source] = []
    with collector_paused():
        for path in source_files(list(paths), exclude):
            result.files += 1
            try:
                source = read_source(path, path.as_posix(), _dotted(path, paths))
            except ValueError as error:
                result.unread.append(Unread(path.as_posix(), str(error)))
                continue
            result.lines += source.module.source.count("\n")
            sources.append(source)
    return sources, result


def read_source(path: Path, shown: str, name: str) -> Source:
    """Read and parse one file; raises ValueError with a reason that fits one line."""
    text, encoding = decode(read_bytes(path))
    book = read_notebook(text) if path.suffix == ".ipynb" else None
    source = book.source if book else text
    refuse_long_lines(source)
    module = parse(shown, name, source, is_package=path.name == "__init__.py")
    return Source(path, shown, module, text, encoding, book)


def parse(shown: str, name: str, source: str, *, is_package: bool = False) -> Module:
    """Parse source text; raises ValueError with a reason that fits one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their literals: not what is asked for
            return Module(shown, name, source, is_package=is_package)
    except SyntaxError as error:
        raise ValueError(f"does not parse as Python 3: line {error.lineno or '?'}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise ValueError("is nested too deeply to parse") from error


def _dotted(path: Path, paths: Sequence[Path]) -> str:
    for top in paths:
        if top.is_dir() and path.is_relative_to(top):
            parts = list(path.relative_to(top).with_suffix("").parts)
            if (top / "__init__.py").exists():
                parts.insert(0, top.resolve().name)
            break
    else:
        parts = [path.stem]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or path.parent.name or "module"


def modules_beside(sources: Sequence[Source], paths: Sequence[Path]) -> list[Module]:
    """Parse modules beside a single named file that it imports, so that values and calls can be followed into them."""
    known = {source.path.resolve() for source in sources}
    found: list[Module] = []
    queue = [(source.path.parent, source.module) for source in sources if source.path in set(paths)]
    while queue and len(found) < _MOST_CONTEXT:
        folder, module = queue.pop()
        for dotted in sorted({*module.imports.values(), *module.stars}):
            parts = dotted.split(".")
            for end in range(len(parts), 0, -1):
                base = folder.joinpath(*parts[:end])
                file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
                if not file.is_file() or file.is_symlink() or file.resolve() in known:
                    continue
                known.add(file.resolve())
                try:
                    source = read_source(file, file.as_posix(), ".".join(parts[:end]))
                except (ValueError, OSError):
                    break
                found.append(source.module)
                queue.append((folder, source.module))
                break
    return found

"""Which traces are meant by files, folders, patterns and the URLs of object stores."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import Any, TypeAlias

from underfed.errors import UsageError
from underfed.trace.source import is_url, one_line, shown, store

#: A file, or the URL of an object.
Place: TypeAlias = Path | str

_SUFFIXES = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".qdrep")
_MARKS = "*?["


def places_of(paths: Sequence[str]) -> list[Place]:
    """Return the traces meant by files, folders, glob patterns and URLs, in order and once; raises UsageError for none.

    A folder gives the files in it and below it that are named as traces (`*trace*.json`, `.json.gz`), or else all that
    could be one. A report of Nsight Systems is left out where its export lies beside it.
    """
    found: dict[Place, None] = {}
    for text in paths:
        found.update(dict.fromkeys(_far(text) if is_url(text) else _near(text)))
    return list(found)


def _near(text: str) -> list[Place]:
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~name of nobody
        path = Path(text)
    if path.is_dir():
        inside = sorted(one for one in path.rglob("*") if one.name.endswith(_SUFFIXES) and one.is_file())
        return [inside[at] for at in _likely([str(one) for one in inside], text)]
    if not path.exists() and any(mark in text for mark in _MARKS):
        matches = sorted(glob(str(path), recursive=True))  # noqa: PTH207 - a pattern may be absolute
        files: list[Place] = [Path(one) for one in matches if Path(one).is_file()]
        if not files:
            raise UsageError(f"no file matches {shown(text)}")
        return files
    return [path]


def _far(url: str) -> list[Place]:
    system, inside = store(url)
    try:
        if any(mark in url for mark in _MARKS):
            names = [one for one in sorted(system.glob(inside)) if system.isfile(one)]
            if not names:
                raise UsageError(f"no object matches {shown(url)}")
            return [_full(system, one) for one in names]
        if not system.isdir(inside) or url.endswith(_SUFFIXES):
            return [url]
        names = sorted(one for one in system.find(inside) if str(one).endswith(_SUFFIXES))
    except UsageError:
        raise
    except Exception as error:  # each store raises errors of its own library
        raise UsageError(f"cannot list {shown(url)}: {one_line(error)}") from None
    return [_full(system, names[at]) for at in _likely(names, url)]


def _full(system: Any, name: str) -> str:
    return str(system.unstrip_protocol(name))


def _likely(names: list[str], folder: str) -> list[int]:
    """Places in the list of those that are most likely traces."""
    if not names:
        raise UsageError(f"{shown(folder)} holds no .json, .json.gz or .sqlite file: name the trace itself")
    exports = {name.removesuffix(".sqlite") for name in names if name.endswith(".sqlite")}
    kept = [at for at, name in enumerate(names) if name.endswith(".sqlite") or name.rpartition(".")[0] not in exports]
    named = [at for at in kept if "trace" in names[at].rpartition("/")[2] or not names[at].endswith((".json", ".gz"))]
    return named or kept

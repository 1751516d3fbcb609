"""Settings in YAML files: composed as Hydra does where a file has a defaults list, each by itself otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

_LIMIT = 20_000
#: A key in dots that is longer leads round and round through an alias.
_LONGEST = 500
_DEEP = 6
_PACKAGE = re.compile(r"^#\s*@package\s+([\w.]+)", re.M)
_POINTER = re.compile(r"^\$\{([\w.]+)\}$")
_UNKNOWN = object()

#: Plain values under their dotted key: the value (or a mark that it cannot be told) and the file that it is from.
Flat = dict[str, tuple[str, object]]


@dataclass(frozen=True)
class Document:
    """A YAML file: its place below the folder that it is looked up from (without suffix), and its values."""

    path: str
    name: str
    package: str
    data: Mapping[Any, Any]


class Settings:
    """All values of some YAML files. `primaries` are the names that programs ask for; without any, all are taken."""

    def __init__(self, documents: Sequence[Document] = (), primaries: frozenset[str] = frozenset()) -> None:
        self._documents = documents
        self._by_name = {one.name: one for one in documents}
        self._asked = primaries

    @cached_property
    def _composed(self) -> list[Flat]:
        """Return the values of each file with a defaults list that is no group's."""
        starts = [one for one in self._documents if "/" not in one.name and isinstance(one.data.get("defaults"), list)]
        wanted = [one for one in starts if one.name in self._asked] or starts
        return [_resolved(self._compose(one, "", self._overrides(one, 0), 0)) for one in wanted]

    @cached_property
    def _plain(self) -> list[Flat]:
        found = []
        for one in self._documents:
            inside = _group(one.name)
            found.append(_resolved({f"{inside}{key}": value for key, value in _flat(one).items()}))
        return found

    def find(self, path: Sequence[str]) -> tuple[str, object] | None:
        """Return the file and the value of the key that ends like a path, if all files that have one agree."""
        tail = ".".join(path)
        for layer in (self._composed, self._plain):
            exact = [flat[tail] for flat in layer if tail in flat]
            found = exact or [v for flat in layer for key, v in flat.items() if key.endswith("." + tail)]
            if found:
                same = all(value == found[0][1] and value is not _UNKNOWN for _, value in found)
                return found[0] if same else None
        return None

    def _overrides(self, one: Document, depth: int) -> dict[str, object]:
        """Return the groups whose choice a file takes back (`override /group: option`)."""
        found: dict[str, object] = {}
        for group, option, marks in _entries(one):
            if "override" in marks:
                found[group.lstrip("/")] = option
            elif option is not None and depth < _DEEP:
                for name in option if isinstance(option, list) else [option]:
                    inner = self._by_name.get(_joined(one, group, name)) if isinstance(name, str) else None
                    found.update(self._overrides(inner, depth + 1) if inner else {})
        return found

    def _compose(self, one: Document, package: str, overrides: Mapping[str, object], depth: int) -> Flat:
        own = {f"{package}{key}": value for key, value in _flat(one).items()}
        if depth > _DEEP:
            return own
        entries = list(_entries(one))
        if all(group != "_self_" for group, _, _ in entries):
            entries.append(("_self_", None, frozenset()))  # the file itself wins, as of Hydra 1.1
        found: Flat = {}
        for group, option, marks in entries:
            if group == "_self_":
                found.update(own)
                continue
            if "override" in marks or group.startswith("hydra/"):
                continue
            absolute = _joined(one, group, "").rstrip("/")
            chosen = overrides.get(absolute, option) if option is not None or absolute in overrides else None
            for name in chosen if isinstance(chosen, list) else [chosen]:
                inner = self._by_name.get(_joined(one, group, name)) if isinstance(name, str) else None
                if inner is not None:
                    found.update(self._compose(inner, _package(inner, marks), overrides, depth + 1))
        return found


def _package(one: Document, marks: frozenset[str]) -> str:
    """Return the key in front of a group file's keys: given by the list, by the file, or the group."""
    given = next((mark[1:] for mark in marks if mark.startswith("@")), None) or one.package
    if given == "_global_":
        return ""
    if not given or given == "_group_":
        return _group(one.name)
    return given + "."


def _group(name: str) -> str:
    parts = name.split("/")[:-1]
    return ".".join(parts) + "." if parts else ""


def _joined(one: Document, group: str, name: str) -> str:
    """Return a config's name from the top; groups are meant from the file's own folder, unless they begin with a /."""
    if group.startswith("/"):
        return str(PurePosixPath(group[1:]) / name)
    return str(PurePosixPath(one.name).parent / group / name)


def _entries(one: Document) -> Iterable[tuple[str, Any, frozenset[str]]]:
    """Give a defaults list: group, option (a name, names or None), and marks (`override`, `optional`, `@package`)."""
    listed = one.data.get("defaults")
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, str) and entry == "_self_":
            yield entry, None, frozenset()
            continue
        items = entry.items() if isinstance(entry, dict) else [_split(entry)] if isinstance(entry, str) else []
        for key, option in items:
            *marks, group = str(key).split() or [""]
            group, _, package = group.partition("@")
            yield group, option, frozenset([*marks, *([f"@{package}"] if package else [])])


def _split(entry: str) -> tuple[str, str]:
    """Return group and option of `group/option`; a plain name stands beside the file itself."""
    entry, _, package = entry.partition("@")
    group, _, name = entry.rpartition("/")
    return (f"{group or '.'}{'@' + package if package else ''}", name)


def _flat(one: Document) -> Flat:
    found: Flat = {}
    queue: list[tuple[str, object]] = [("", {k: v for k, v in one.data.items() if k != "defaults"})]
    visited = 0
    while queue and visited < _LIMIT:  # aliases can make a small file huge
        visited += 1
        key, value = queue.pop()
        children: Iterable[tuple[object, object]] | None = None
        if isinstance(value, dict):
            children = value.items()
        elif isinstance(value, list):
            children = enumerate(value)
        if children is not None and len(key) > _LONGEST:
            continue
        if children is not None:
            queue += [(f"{key}.{k}" if key else str(k), v) for k, v in children]
        elif isinstance(value, str | int | float | bool) or value is None:
            found[key] = (one.path, _UNKNOWN if value == "???" else value)
    return found


def _resolved(flat: Flat) -> Flat:
    """Follow `${key}`; other interpolations cannot be told."""
    found: Flat = {}
    for key, (path, given) in flat.items():
        value = given
        for _ in range(_DEEP):
            pointer = _POINTER.match(value) if isinstance(value, str) else None
            if pointer is None or pointer[1] not in flat:
                break
            value = flat[pointer[1]][1]
        found[key] = (path, _UNKNOWN if isinstance(value, str) and "${" in value else value)
    return found


def read_document(text: str, path: Path, name: str) -> Document | None:
    """Return a YAML file's plain data; None where it cannot be read, holds none, or PyYAML is not installed.

    Tags that make objects are errors here.
    """
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe loader
    except (yaml.YAMLError, RecursionError, ValueError, KeyError, IndexError, AttributeError, TypeError):
        return None  # the last four: `!!bool maybe`, `!!int ""`, `!!timestamp soon`
    if not isinstance(data, dict):
        return None
    package = _PACKAGE.search(text)
    return Document(path.as_posix(), name, package[1] if package else "", data)


#: More files, deeper folders or larger files than these are no settings that people wrote.
_MOST_FILES = 400
_LARGEST = 200_000


def read_settings(folders: Iterable[Path], primaries: frozenset[str] = frozenset()) -> Settings:
    """Read the YAML files of some folders, and of the groups below their `conf*` folders."""
    documents: list[Document] = []
    for folder in sorted(set(folders)):
        for top in (folder, *_conf_folders(folder)):
            depth = 1 if top is folder else _DEEP - 2
            for file in _yaml_files(top, depth):
                if len(documents) >= _MOST_FILES:
                    return Settings(documents, primaries)
                try:
                    text = file.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    continue
                one = read_document(text, file, file.relative_to(top).with_suffix("").as_posix())
                documents += [one] if one is not None else []
    return Settings(documents, primaries)


def _yaml_files(top: Path, depth: int) -> Iterable[Path]:
    try:
        children = [child for child in sorted(top.iterdir()) if not child.is_symlink()]
        files = {child for child in children if child.suffix in {".yaml", ".yml"} and child.is_file()}
        small = {child for child in files if child.stat().st_size <= _LARGEST}
        folders = {child for child in children if child.is_dir() and not child.name.startswith(".")}
    except OSError:
        return
    for child in children:
        if child in small:
            yield child
        elif depth > 1 and child in folders:
            yield from _yaml_files(child, depth - 1)


def _conf_folders(folder: Path) -> list[Path]:
    try:
        named = [one for one in sorted(folder.iterdir()) if one.name.startswith("conf") and not one.is_symlink()]
        return [one for one in named if one.is_dir()]
    except OSError:
        return []

"""Which runs below a folder are finished, which are not, and which of a roster are missing."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass, field
from pathlib import Path

from underfed.carry.names import OURS, shown
from underfed.errors import UsageError


@dataclass(frozen=True)
class Run:
    """A finished run: its path below SRC (`.` for SRC itself), its name, and the markers that say it is finished."""

    path: str
    name: str
    folder: Path
    markers: tuple[str, ...]


@dataclass(frozen=True)
class Skipped:
    """A folder that is not carried, and why; `wrong` when that leaves something expected behind."""

    path: str
    reason: str
    wrong: bool = False


@dataclass
class Found:
    """What lies below SRC."""

    runs: list[Run] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def find_runs(source: Path, marker: str) -> Found:
    """Find every folder below `source` (itself included) that holds a file matching the glob `marker`.

    A run inside a run is a run of its own. A folder without a marker and without a run below it is listed as
    unfinished. Links to folders are not walked through, since their target inside `source` is found by its own name; a
    link that leaves `source` or leads nowhere is listed as wrong.
    """
    found = Found()
    _visit(source, source, marker, found)
    found.runs.sort(key=lambda run: run.path)
    found.skipped.sort(key=lambda skip: skip.path)
    return found


def _visit(source: Path, folder: Path, marker: str, found: Found) -> bool:
    """Look at one folder and say whether there is a run in it or below."""
    path = folder.relative_to(source).as_posix()
    markers = _markers(folder, marker)
    if markers:
        name = source.resolve().name if path == "." else folder.name
        found.runs.append(Run(path, name, folder, markers))
    inside = False
    quiet = Found()
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.skipped.append(Skipped(path, f"cannot be read: {error.strerror}", wrong=True))
        return bool(markers)
    for entry in entries:
        if entry.name in OURS or entry.name.startswith(".underfed"):
            continue
        if entry.is_symlink():
            _visit_link(source, folder / entry.name, bool(markers), found)
        elif entry.is_dir(follow_symlinks=False):
            inside |= _visit(source, folder / entry.name, marker, quiet)
    found.runs += quiet.runs
    if markers:
        # What a finished run holds is its own: a folder in it without a marker is no unfinished run.
        found.skipped += [skip for skip in quiet.skipped if skip.wrong]
    elif inside or path == ".":
        found.skipped += quiet.skipped
    else:
        found.skipped += [skip for skip in quiet.skipped if skip.wrong]
        found.skipped.append(Skipped(path, f"unfinished: no {marker}"))
    return bool(markers) or inside


def _visit_link(source: Path, link: Path, in_run: bool, found: Found) -> None:
    """List a link to a folder; those inside a run are the run's and judged when its files are taken."""
    if in_run:
        return
    path = link.relative_to(source).as_posix()
    target = os.path.realpath(link)
    if not os.path.lexists(target):
        found.skipped.append(Skipped(path, f"dead link to {shown(link.readlink())}", wrong=True))
    elif not Path(target).is_dir():
        return
    elif inside_of(target, source):
        found.skipped.append(Skipped(path, f"link to {shown(link.readlink())}, which is looked at by its own name"))
    else:
        found.skipped.append(Skipped(path, f"link that leaves the source, to {shown(link.readlink())}", wrong=True))


def inside_of(target: str, folder: Path) -> bool:
    """Say whether a resolved path lies in a folder or is it."""
    root = os.path.realpath(folder)
    return target == root or target.startswith(root.rstrip("/") + "/")


def _markers(folder: Path, marker: str) -> tuple[str, ...]:
    """Return the paths of the regular files in `folder` that match; a glob with slashes looks that deep."""
    level = [""]
    parts = [part for part in marker.split("/") if part not in {"", "."}]
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        following = []
        for prefix in level:
            try:
                names = sorted(entry.name for entry in os.scandir(folder / prefix))
            except OSError:
                continue
            for name in names:
                path = prefix + name
                if not fnmatch.fnmatchcase(name, part):
                    continue
                if last and (folder / path).is_file():
                    following.append(path)
                elif not last and (folder / path).is_dir() and not (folder / path).is_symlink():
                    following.append(path + "/")
        level = following
    return tuple(level)


def read_roster(path: Path) -> list[str]:
    """Read the names of the runs that must be there: one a line, `#` starts a comment.

    Raises UsageError when the file cannot be read or names nothing.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--expect {shown(path)}: {why}; give a text file with one run name a line") from error
    names = [line.split("#", 1)[0].strip().rstrip("/") for line in lines]
    roster = list(dict.fromkeys(name for name in names if name))
    if not roster:
        raise UsageError(f"--expect {shown(path)}: it names no run; write one run name a line")
    return roster


def roster_gaps(roster: list[str], found: Found) -> list[tuple[str, str]]:
    """Return (name, reason) for every name of the roster that no finished run answers to.

    A name is a run's path below SRC or its folder's name; a name that two runs share stands for neither.
    """
    gaps = []
    for wanted in roster:
        matches = [run for run in found.runs if run.path == wanted] or [r for r in found.runs if r.name == wanted]
        if len(matches) == 1:
            continue
        if matches:
            paths = ", ".join(shown(run.path) for run in matches)
            gaps.append((wanted, f"{len(matches)} runs have this name ({paths}); write the path in the roster"))
            continue
        skipped = [s for s in found.skipped if wanted in {s.path, s.path.rsplit("/", 1)[-1]}]
        gaps.append((wanted, skipped[0].reason if skipped else "missing: no such folder in the source"))
    return gaps

"""Where a recording goes: a new folder for each run, readable by its owner alone, and the header in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

from underfed.errors import UnderfedError, UsageError

SCHEMA = "underfed.recording/1"
HEADER = "recording.json"
HIDDEN = "…"
WAY_OUT = "name another place with --out DIR"

_OPTION = re.compile(r"(--?[A-Za-z][A-Za-z0-9_.-]*)(=.*)?", re.DOTALL)
_SCRIPT = re.compile(r"[^=]*\.(py|pyw|pyz|zip|sh|bash|ipynb)")


class NoPlaceError(UnderfedError):
    """Nothing can be written there; the command may run all the same, unrecorded."""


def new_folder(out: Path | None) -> Path:
    """Create the folder for one recording and return its absolute path.

    Without `out` it is `${TMPDIR:-/tmp}/underfed-UID/TIME-HOST-PID`, which never existed before. `out` must be new or
    empty: UsageError otherwise. NoPlaceError where the file system or somebody else's folder stands in the way.
    """
    try:
        return _default_folder() if out is None else _chosen_folder(out)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NoPlaceError(f"cannot write to {error.filename or out}: {reason}; {WAY_OUT}") from error


def _chosen_folder(out: Path) -> Path:
    folder = Path(os.path.abspath(out))  # noqa: PTH100 - resolve() would follow links that the user chose to name
    if not os.path.lexists(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        return folder
    if not folder.is_dir():
        raise UsageError(f"--out {out}: is a file; name a folder that is new or empty")
    if any(folder.iterdir()):
        raise UsageError(
            f"--out {out}: holds something already and is never overwritten; name a new folder, or empty this one"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NoPlaceError(f"cannot write to {folder}: permission denied; {WAY_OUT}")
    return folder


def _default_folder() -> Path:
    base = Path(os.environ.get("TMPDIR") or "/tmp").absolute()  # noqa: S108 - everything below is checked
    parent = base / f"underfed-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        parent.mkdir(mode=0o700)
    # From here on by descriptor: in /tmp anyone may exchange what a name stands for.
    held = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        facts = os.fstat(held)
        if facts.st_uid != os.geteuid():
            raise NoPlaceError(f"{parent} belongs to somebody else; {WAY_OUT}")
        if stat.S_IMODE(facts.st_mode) & 0o077:
            os.fchmod(held, 0o700)
        host = re.sub(r"[^A-Za-z0-9.-]", "-", os.uname().nodename)[:64]
        stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{host}-{os.getpid()}"
        for attempt in range(1, 1000):
            name = stem if attempt == 1 else f"{stem}-{attempt}"
            try:
                os.mkdir(name, mode=0o700, dir_fd=held)
            except FileExistsError:
                continue
            return parent / name
    finally:
        os.close(held)
    raise NoPlaceError(f"{parent} is full of runs named {stem}; remove old ones")


def write_header(folder: Path, command: Sequence[str]) -> None:
    """Write `recording.json`: when the run started, and its command without values. NoPlaceError where that fails."""
    header = {"schema": SCHEMA, "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "command": redacted(command)}
    text = json.dumps(header, ensure_ascii=True, indent=1) + "\n"
    try:
        descriptor = os.open(
            folder / HEADER, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise NoPlaceError(f"cannot write to {folder}: {reason}; {WAY_OUT}") from error


def discard(folder: Path) -> None:
    """Remove a folder that holds nothing but the header, after a command that could not be started."""
    with contextlib.suppress(OSError):
        (folder / HEADER).unlink(missing_ok=True)
        folder.rmdir()


def redacted(command: Sequence[str]) -> list[str]:
    """Return the words that cannot be a secret: the program's name, the first script or module, names of options.

    Every other word, and every value of an option, becomes an ellipsis.
    """
    words = [os.path.basename(command[0])] if command else []  # noqa: PTH119 - a name, not a path of this machine
    script_seen = module_next = False
    for word in command[1:]:
        option = _OPTION.fullmatch(word)
        if module_next or (option is None and not script_seen and _SCRIPT.fullmatch(word)):
            words.append(word)
            script_seen, module_next = True, False
        elif word == "--":
            words.append(word)
        elif option is None:
            words.append(HIDDEN)
        elif word == "-m" and not script_seen:
            words.append(word)
            module_next = True
        else:
            words.append(_option_name(option))
    return words


def _option_name(option: re.Match[str]) -> str:
    name, value = option.group(1), option.group(2)
    if not name.startswith("--") and len(name) > 2:
        return name[:2] + HIDDEN  # -pSECRET
    return name + ("=" + HIDDEN if value is not None else "")

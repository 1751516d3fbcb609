"""Reads the SQLite that `nsys export --type sqlite` writes, into one Timeline for each process that used a GPU.

An export holds every process of a machine, mostly one a rank.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

from underfed.errors import UsageError
from underfed.timeline.model import Timeline
from underfed.trace.nsight_tables import Export
from underfed.trace.source import shown

MAGIC = b"SQLite format 3\x00"
_REPORTS = (".nsys-rep", ".qdrep")


def is_nsight(path: Path) -> bool:
    """Tell whether a file is an Nsight report, or an SQLite file."""
    if path.name.endswith(_REPORTS):
        return True
    try:
        # Only of a regular file: what is read off a pipe is gone.
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_nsight(path: Path) -> list[Timeline]:
    """Read an export, or a report where `nsys` can export it; one Timeline a process, in the order of process ids.

    Raises UsageError where the file is no export of Nsight Systems, holds no GPU work, or cannot be read.
    """
    if not path.name.endswith(_REPORTS):
        return _read(path, path)
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UsageError(
            f"{shown(path)} is an Nsight Systems report, and nsys is not installed here: run "
            "`nsys export --type sqlite` on it where nsys is, and read the .sqlite file"
        )
    if not path.is_file():
        raise UsageError(f"cannot read {shown(path)}: no such file")
    with tempfile.TemporaryDirectory(prefix="underfed-") as folder:
        exported = Path(folder) / "report.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(exported), str(path.absolute())]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode or not exported.is_file():
            said = " ".join((done.stderr or done.stdout).split())[:200]
            raise UsageError(f"nsys cannot export {shown(path)}: {shown(said) or f'exit code {done.returncode}'}")
        return _read(exported, path)


def _read(path: Path, named: Path) -> list[Timeline]:
    try:
        # A file that nobody writes to: no lock, no journal beside it.
        address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            database.execute("PRAGMA trusted_schema = OFF")
            return Export(database, named).timelines()
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{shown(named)} is an SQLite file that cannot be read ({shown(str(error))}): export it again"
        ) from None

"""Folders made below a place that they must not leave, and made durable."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_NO_SYNC = frozenset({errno.EINVAL, errno.EROFS, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF})


def make_folders(base: Path, relative: str) -> set[Path]:
    """Make the folders of a relative path below `base`, none of which may be a link; return parents of new ones."""
    touched: set[Path] = set()
    folder = base
    for part in relative.split("/"):
        if part in {"", "."}:
            continue
        folder /= part
        try:
            folder.mkdir()
            touched.add(folder.parent)
        except FileExistsError:
            if not stat.S_ISDIR(folder.lstat().st_mode):
                raise NotADirectoryError(errno.ENOTDIR, "a link or a file is where a folder should be") from None
    return touched


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable; file systems that know no such thing are let be."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(fd)

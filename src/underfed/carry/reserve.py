"""Empty files made before anything is copied: the trial of inodes, and then the temporary names to copy into.

Made and removed again they would be made twice, and ext4 passes by every inode removed of late when it makes the next.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path

#: The file whose lock says that its maker is alive: made first, removed last.
LOCKED = "0"
#: What the names of files begin with that stand for folders; the others are numbers alone.
FOLDER = "folder-"
#: The mode that most files have: theirs then need not be set. The folder that they are in is nobody else's.
USUAL = 0o644


class Reserve:
    """Empty files in a folder of ours below the destination; `lock` is an open file in it that says we are alive.

    `mode` is what all of them have.
    """

    def __init__(self, folder: Path, lock: int, names: list[str], mode: int) -> None:
        self.folder, self.lock, self.mode = folder, lock, mode
        self._names = deque(names)

    def take(self) -> str | None:
        """Return the path of an empty file that is nobody else's, or None if none is left."""
        try:
            return self._names.popleft()
        except IndexError:
            return None

    def keep_share(self, process: int, of: int) -> None:
        """Keep every so many-th name: the others are for other copies of this process. Once only counts.

        The lock is theirs no more either: it is to end with the first process.
        """
        if self.lock >= 0:
            self._names = deque(list(self._names)[process::of])
            os.close(self.lock)
            self.lock = -1

    def release(self) -> None:
        """Remove what was not taken."""
        clear(self.folder)
        with contextlib.suppress(OSError):
            os.close(self.lock)


def clear(folder: Path) -> None:
    """Remove a folder of our files, the one that is locked last: a kill on the way leaves what can be told by it.

    What has a name that we do not give stays, and the folder with it.
    """
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name != LOCKED and entry.name.removeprefix(FOLDER).isdecimal():
                with contextlib.suppress(OSError):
                    os.unlink(entry)  # noqa: PTH108 (thousands)
        (folder / LOCKED).unlink(missing_ok=True)
        folder.rmdir()

"""Empty files made before anything is copied: the trial of inodes, and then the temporary names to copy into.

Made and removed again they would be made twice, and ext4 passes by every inode removed of late when it makes the next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import deque
from pathlib import Path


class Reserve:
    """Empty files in a folder of ours below the destination; `lock` is an open file in it that says we are alive."""

    def __init__(self, folder: Path, lock: int, names: list[str]) -> None:
        self.folder, self.lock = folder, lock
        self._names = deque(names)

    def take(self) -> str | None:
        """Return the path of an empty file that is nobody else's, or None if none is left."""
        try:
            return self._names.popleft()
        except IndexError:
            return None

    def release(self) -> None:
        """Remove what was not taken."""
        with contextlib.suppress(OSError):
            os.close(self.lock)
        shutil.rmtree(self.folder, ignore_errors=True)

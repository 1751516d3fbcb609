"""The destination's tree: what lies at a name, and the folders and links that a pull makes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from underfed.carry.folders import make_folders, sync_folder
from underfed.carry.links import link_trouble
from underfed.carry.listing import Listing
from underfed.carry.names import shown


class Tree:
    """The folder that is pulled into; nothing is reached through a link below it."""

    def __init__(self, root: Path, staging: Path, *, refuse: bool) -> None:
        self.root, self.staging, self.refuse = root, staging, refuse

    def look(self) -> Callable[[str], os.stat_result | str | None]:
        """Return a function that looks at local files: the state of one, None for none, or what is in the way.

        What is known of a folder is kept: it is for one pass over a listing, before anything is made.
        """
        folders: dict[str, str | bool] = {"": True}

        def folder(path: str) -> str | bool:
            """True for a folder, False for nothing, else what is in the way."""
            if path not in folders:
                above = folder(path.rpartition("/")[0])
                folders[path] = above if above is not True else self._folder(path)
            return folders[path]

        def held(path: str) -> os.stat_result | str | None:
            above = folder(path.rpartition("/")[0])
            return self._file(path) if above is True else above or None

        return held

    def _folder(self, path: str) -> str | bool:
        state = self._state(path)
        if state is None or isinstance(state, str):
            return state or False
        return True if stat.S_ISDIR(state.st_mode) else "something other than a folder is here; move it away"

    def _file(self, path: str) -> os.stat_result | str | None:
        state = self._state(path)
        if state is None or isinstance(state, str) or stat.S_ISREG(state.st_mode):
            return state
        return "something other than a file is here; move it away"

    def _state(self, path: str) -> os.stat_result | str | None:
        try:
            state = os.lstat(f"{self.root}/{path}")
        except FileNotFoundError:
            return None
        except OSError as error:
            return str(error.strerror)
        if stat.S_ISLNK(state.st_mode):
            return f"{shown(self.root / path)} is a link here; it is not written through; move it away"
        return state

    def complete(self, listing: Listing, touched: set[Path]) -> dict[str, str]:
        """Make folders and links, and make all names durable; returns what could not be, with the reason.

        `touched` holds the folders in which names were made; it is empty afterwards.
        """
        wrong = {}
        for folder in listing.folders:
            try:
                touched |= make_folders(self.root, folder)
            except OSError as error:  # noqa: PERF203 (each folder fails by itself)
                wrong[folder] = str(error.strerror)
        for path, target in listing.links.items():
            why = link_trouble(path, target, refuse=self.refuse)
            if why is None:
                with contextlib.suppress(FileNotFoundError):
                    why = self._make_link(path, target, touched)
            if why:
                wrong[path] = why
        for at in sorted(touched):
            with contextlib.suppress(FileNotFoundError):
                sync_folder(at)
        touched.clear()
        return wrong

    def _make_link(self, path: str, target: str, touched: set[Path]) -> str | None:
        final = self.root / path
        try:
            touched |= make_folders(self.root, path.rpartition("/")[0])
            if final.is_symlink() and str(final.readlink()) == target:
                return None
            if os.path.lexists(final) and not final.is_symlink():
                return "a link there, something else here; move it away"
            staged = self.staging / path
            make_folders(self.staging, path.rpartition("/")[0])
            staged.unlink(missing_ok=True)
            staged.symlink_to(target)
            staged.rename(final)
            touched.add(final.parent)
        except OSError as error:
            return f"link cannot be made: {error.strerror or errno.errorcode.get(error.errno or 0, '')}"
        return None

    def lacking(self, listing: Listing) -> dict[str, str]:
        """Return which folders and links are not here, with the reason."""
        wrong = {}
        for path, target in listing.links.items():
            why = link_trouble(path, target, refuse=self.refuse)
            final = self.root / path
            if why is None and not (final.is_symlink() and str(final.readlink()) == target):
                why = "the link is not here"
            if why:
                wrong[path] = why
        for folder in listing.folders:
            if not (self.root / folder).is_dir():
                wrong[folder] = "the folder is not here"
        return wrong

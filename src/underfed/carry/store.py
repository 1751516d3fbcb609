"""What `collect` needs of a place to put runs, whatever that place is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from underfed.carry.manifest import Manifest
from underfed.carry.take import Source
from underfed.errors import UsageError


class CarryError(Exception):
    """One file could not be carried; the text says why. `permanent`: nothing more can be written at all;
    `transient`: it may go better in a moment; `changed`: the source is still being written.
    """

    def __init__(self, text: str, *, permanent: bool = False, transient: bool = False, changed: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent
        self.transient = transient
        self.changed = changed


class BusyError(UsageError):
    """Another process is working on the same folder."""


@dataclass(frozen=True)
class Held:
    """A file that a place holds: size in bytes and, where the place keeps it, the mtime in ns."""

    size: int
    mtime_ns: int | None


class RunPlace(ABC):
    """The folder of one run in a store."""

    @abstractmethod
    def manifest(self) -> tuple[Manifest | None, str | None]:
        """Return the run's manifest, or None with the reason if there is one that cannot be used."""

    @abstractmethod
    def withdrawn(self) -> Manifest | None:
        """Return the manifest of what stood here before an unfinished replacement."""

    @abstractmethod
    def held(self, path: str) -> Held | None:
        """Say what lies at a path, or None. Raises CarryError when something other than a file is in the way."""

    @abstractmethod
    def digest(self, path: str) -> str:
        """Read the copy back and return its BLAKE3. Raises CarryError."""

    @abstractmethod
    def carry_all(self, sources: Sequence[Source]) -> Generator[tuple[Source, str | CarryError], None, None]:
        """Copy files, read each back, and give the BLAKE3 that both have, or why it is not there.

        What stood there before then stands there still, or nothing does. It is to be closed by who ends early.
        """

    @abstractmethod
    def settle(self, source: Source) -> None:
        """Give a copy with the right bytes the source's time."""

    @abstractmethod
    def withdraw(self) -> None:
        """Take the manifest out of its place, durably, before a file that it names is replaced."""

    @abstractmethod
    def set_aside(self, path: str) -> str:
        """Move a file that the run no longer has out of the way and return where it is now."""

    @abstractmethod
    def finish(self, manifest: Manifest) -> None:
        """Make all that was carried durable, then put the manifest in its place."""


class Store(ABC):
    """Where runs go. `name` is how the user wrote it; `shared`: copies of this process may carry runs as well."""

    name: str
    shared = False

    @abstractmethod
    def prepare(self) -> None:
        """Make the place ready for writing. Raises UsageError."""

    @abstractmethod
    def check_room(self, sizes: Sequence[int], folders: int, counted_bytes: int) -> None:
        """Raise UsageError if files of these sizes in so many new folders cannot be held."""

    def release(self) -> None:  # noqa: B027 (nothing is held where nothing is counted)
        """Give back what `check_room` holds."""

    def keep_share(self, process: int, of: int) -> None:  # noqa: B027 (as above)
        """This is the copy of this number of so many: what `check_room` holds is shared out among them."""

    @abstractmethod
    def space_text(self) -> str:
        """Return one line on the room that is left."""

    @abstractmethod
    def run(self, path: str, *, write: bool) -> AbstractContextManager[RunPlace]:
        """Open one run's folder; `write` makes it and keeps other writers out. Raises BusyError."""

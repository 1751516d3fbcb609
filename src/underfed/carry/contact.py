"""The first session of a pull: the tools there, what is there, and its hashes while files are on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from underfed.carry.far import Address, FarError, Record, Session
from underfed.carry.far_script import contact_script
from underfed.carry.listing import Listing
from underfed.carry.manifest import safe_relative
from underfed.carry.names import INCOMING, shown

_ALIVE = frozenset({"t", "s", "a"})


class Guide:
    """A session that has listed all that is there, hashes it for all folders, and then can look once more."""

    def __init__(self, session: Session, records: Iterator[Record], listed: list[Record]) -> None:
        self.failure: FarError | None = None
        self._session, self._records, self._listed = session, records, listed
        self._listings: list[Listing] = []
        self._reader: threading.Thread | None = None

    def listings(self, units: list[list[str]]) -> list[Listing]:
        """Return a listing for each list of names directly in the folder; their hashes come in from now on."""
        self._listings = [Listing(names) for names in units]
        by_name = {name: self._listings[number] for number, names in enumerate(units) for name in names}
        if self._listings:
            by_name[INCOMING] = self._listings[0]  # which notes that it is not carried
        for record in self._listed:
            if listing := by_name.get(record.path.split("/")[0]):
                listing.add(record)
        for listing in self._listings:
            listing.listed()
        self._reader = threading.Thread(target=self._read, args=(by_name,), daemon=True)
        self._reader.start()
        return self._listings

    def _read(self, by_name: dict[str, Listing]) -> None:
        hashed = False
        try:
            for record in self._records:
                if record.kind == "p":
                    hashed = True
                    break
                if listing := by_name.get(record.path.split("/")[0]):
                    listing.add(record)
        except FarError as error:
            self.failure = error
        finally:
            if not hashed and self.failure is None:
                self.failure = FarError("dropped", "the far side ended before all was hashed")
            for listing in self._listings:
                listing.complete = hashed
                listing.end()

    def again(self) -> list[Record] | None:
        """Return what is there now, None if that is what was listed. Raises FarError when the session is gone."""
        if self._reader:
            self._reader.join()
        if self.failure:
            raise self.failure
        self._session.tell("again")
        now = [record for record in self._records if record.kind not in _ALIVE]
        return None if [record.kind for record in now] == ["u"] else now

    def close(self) -> None:
        """End the session."""
        self._session.kill()
        if self._reader:
            self._reader.join()
        self._session.close()


@dataclass
class Contact:
    """What the first session learnt: tools on the far side, and what lies directly in the folder.

    python: the path of one there, empty for none; listed: the whole tree with Python there, else what lies on top.
    """

    tools: frozenset[str]
    python: str
    folders: list[str]
    loose: list[str]
    strange: list[str]
    listed: list[Record]
    guide: Guide | None = None

    def close(self) -> None:
        """End the session, where it goes on."""
        if self.guide:
            self.guide.close()


def contact(address: Address, silence: float) -> Contact:
    """Look at a far folder. Raises FarError."""
    session = Session(address, lambda nonce: contact_script(address.path, nonce), silence, listening=True)
    records = session.records()
    try:
        tools, python, listed, goes_on = _listed(address, records)
    except BaseException:
        session.close()
        raise
    folders, loose, strange = top(listed)
    found = Contact(tools, python, folders, loose, strange, listed)
    if goes_on:
        found.guide = Guide(session, records, listed)
    else:
        session.close()
    return found


def _listed(address: Address, records: Iterator[Record]) -> tuple[frozenset[str], str, list[Record], bool]:
    """Read the tools and the tree; the last value says whether hashes follow."""
    tools: set[str] = set()
    python = ""
    listed: list[Record] = []
    for record in records:
        if record.kind == "s":
            return frozenset(tools), python, listed, True
        if record.kind == "a":
            tools.add(record.extra)
            python = record.path if record.extra == "python" else python
        elif record.kind == "x" and not record.path:
            raise FarError("path", _why(address, record.extra))
        elif record.kind not in _ALIVE:
            listed.append(record)
    return frozenset(tools), python, listed, False


def _why(address: Address, reason: str) -> str:
    where = f"{shown(address.host)}:{shown(address.path)}"
    return {
        "missing": f"{where}: no such folder there, or it may not be reached; check the path",
        "notdir": f"{where}: is not a folder; give the folder that holds it",
        "denied": f"{where}: may not be read by this user; check its rights",
    }.get(reason, f"{where}: {shown(reason)}")


def top(listed: list[Record]) -> tuple[list[str], list[str], list[str]]:
    """Return the names directly in the folder: folders, all else, and what is no name here."""
    kinds: dict[str, str] = {}
    strange = set()
    for record in listed:
        first, slash, _ = record.path.partition("/")
        if safe_relative(record.path):
            kinds.setdefault(first, "d" if slash else record.kind)
        else:
            strange.add(record.path)
    kinds.pop(INCOMING, None)
    folders = sorted(name for name, kind in kinds.items() if kind == "d")
    return folders, sorted(kinds.keys() - set(folders)), sorted(strange)

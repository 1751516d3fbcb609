"""One folder of a pull: fetched into staging, proven there, and only then given its name."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from underfed.carry.contact import Guide
from underfed.carry.far import Address, FarError, Session
from underfed.carry.far_script import walk_script
from underfed.carry.fetch import NoRsyncError, by_rsync, by_tar, local_rsync
from underfed.carry.folders import make_folders
from underfed.carry.hashing import hash_file, hash_fresh
from underfed.carry.landing import Landing
from underfed.carry.listing import FarFile, Listing
from underfed.carry.preflight import check_room
from underfed.carry.tree import Tree
from underfed.carry.unit_outcome import PullOptions, UnitOutcome
from underfed.carry.wire import Turn, Wire

#: Files of this mean size in bytes, or more, are told of while they come.
_LARGE = 256 << 10

Proof = Literal["verified", "other bytes", "no hash", "missing"]


@dataclass
class Base:
    """What all folders of a pull share."""

    address: Address
    root: Path
    staging: Path
    lock: int
    options: PullOptions
    python: str
    rsync: bool
    tar: bool
    planned: Callable[[int], None]
    moved: Callable[[int], None]
    wire: Wire
    room: threading.Lock = field(default_factory=threading.Lock)


class UnitPull:
    """Pulls what goes by one session: a folder, small folders together, or the loose files beside the folders.

    `parts` gives the names directly in the far folder by the label under which they are reported.
    """

    def __init__(self, base: Base, parts: dict[str, list[str]]) -> None:
        self.base, self.parts = base, parts
        self.names = [name for names in parts.values() for name in names]
        self.outcome = UnitOutcome(", ".join(list(parts)[:3]) + (" and more" if len(parts) > 3 else ""))
        self.outcomes = {label: UnitOutcome(label) for label in parts}
        self.listing: Listing | None = None
        self._known: dict[tuple[str, int | None, int | None], set[str]] = {}
        self._trust = True
        self.tree = Tree(base.root, base.staging, refuse=base.options.links == "refuse")
        self._lock = threading.Lock()
        self._touched: set[Path] = set()
        self._made: set[str] = set()
        self._tally = 0
        self._fetched: dict[str, int] = {}
        self._guide: Guide | None = None
        self.guided = False  # whether the listing is that of the session that was open

    def follow(self, guide: Guide, listing: Listing) -> None:
        """Take the tree and its hashes from a session that is open already, for the first attempt."""
        self._guide, self.listing, self.guided = guide, listing, True

    def part(self, path: str) -> UnitOutcome:
        """Return the outcome of the part that a path belongs to."""
        first = path.split("/", maxsplit=1)[0]
        return next(self.outcomes[label] for label, names in self.parts.items() if first in names)

    def linked(self) -> list[str]:
        """Return the labels of parts with links, of which more is known when all parts are here."""
        return list(dict.fromkeys(self.part(path).name for path in (self.listing.links if self.listing else ())))

    def end(self) -> list[UnitOutcome]:
        """Say of each part what became of it."""
        owner = {name: self.outcomes[label] for label, names in self.parts.items() for name in names}
        first = next(iter(owner.values()))  # told of what the far side says of names that are not among these
        for part in owner.values():
            part.failure = self.outcome.failure
        for path, state in self.outcome.states.items():
            owner[path.split("/")[0]].states[path] = state
        for path, why in self.outcome.wrong.items():
            owner.get(path.split("/")[0], first).wrong[path] = why
        for path, size in self._fetched.items():
            part = owner[path.split("/")[0]]
            part.fetched_files, part.fetched_bytes = part.fetched_files + 1, part.fetched_bytes + size
        for path, file in self.listing.files.items() if self.listing else ():
            owner[path.split("/")[0]].bytes += file.size or 0
        for path, note in self.listing.notes if self.listing else ():
            owner.get(path.split("/")[0], first).notes.append(note)
        return list(self.outcomes.values())

    def signature(self) -> int:
        """Return a number that grows when something was brought home: bytes in staging and files in place."""
        total = sum(self._fetched.values()) + len(self._fetched)
        for name in self.names:
            for at, _, files in os.walk(self.base.staging / name):
                for file in files:
                    with contextlib.suppress(OSError):
                        total += os.lstat(os.path.join(at, file)).st_blocks  # noqa: PTH118
            with contextlib.suppress(OSError):
                total += os.lstat(self.base.staging / name).st_blocks
        return total

    def attempt(self) -> None:
        """Go as far as the link allows. Raises FarError when it drops or nothing more can be done."""
        guide, self._guide = self._guide, None
        if guide and self.listing and not self.listing.distrust:
            self._guided(guide, self.listing)
            return
        if guide:  # a manifest there is broken: hashes are asked for instead
            self._trust, self.listing = False, None
        self.guided = False
        base = self.base
        skip = self._skip()

        def script(nonce: str) -> str:
            return walk_script(
                base.address.path,
                nonce,
                self.names,
                hashes=True,
                skip=skip,
                trust=self._trust,
                python=base.python,
            )

        with Session(base.address, script, base.options.silence) as session:
            listing = Listing(self.names)
            records = session.records()
            for record in records:
                if record.kind == "s":
                    break
                listing.add(record)
            listing.listed()
            if listing.distrust and self._trust:
                self._trust = False
                raise FarError("dropped", "a manifest there is broken; asking for hashes instead")
            self._recall(listing)
            if skip and not self._same_start(listing, skip):
                self.listing = None
                raise FarError("dropped", "files there changed between two attempts")
            self.listing = listing
            failed: list[FarError] = []
            reader = threading.Thread(target=_read_hashes, args=(records, listing, failed), daemon=True)
            reader.start()
            try:
                self._work(listing)
                reader.join()
            finally:
                session.close()
                reader.join()
                self._remember(listing)
        if failed:
            raise failed[0]

    def _guided(self, guide: Guide, listing: Listing) -> None:
        try:
            self._work(listing)
        finally:
            self._remember(listing)
        if guide.failure and any(listing.needs_hash(path) for path in listing.files):
            raise guide.failure

    def _skip(self) -> int:
        """Return how many files at the beginning of the list have hashes from a former attempt."""
        if self.listing is None:
            return 0
        known = 0
        for file in self.listing.in_order():
            if (file.path, file.size, file.mtime_ns) not in self._known or self.listing.needs_hash(file.path):
                break
            known += 1
        return known if self.base.python else 0

    def _same_start(self, listing: Listing, skip: int) -> bool:
        first = listing.in_order()[:skip]
        return len(first) == skip and all((f.path, f.size, f.mtime_ns) in self._known for f in first)

    def _recall(self, listing: Listing) -> None:
        for file in listing.files.values():
            file.expected |= self._known.get((file.path, file.size, file.mtime_ns), set())

    def _remember(self, listing: Listing) -> None:
        for file in listing.files.values():
            if file.mtime_ns is not None and file.expected:
                self._known[file.path, file.size, file.mtime_ns] = set(file.expected)

    def _work(self, listing: Listing) -> None:
        outcome, options = self.outcome, self.base.options
        outcome.states = {}
        outcome.wrong = dict(listing.wrong)
        fetch, same_size = [], []
        look = self.tree.look()
        for path, file in listing.files.items():
            held = look(path)
            if isinstance(held, str):
                outcome.wrong[path] = held
            elif held is not None and (file.size is None or held.st_size == file.size):
                same_size.append(path)
            else:
                fetch.append(path)
        with ThreadPoolExecutor(2) as pool:
            checks = {path: pool.submit(self._prove_held, path) for path in same_size}
            if not options.check:
                self._fetch(listing, fetch)
            else:
                for path in fetch:
                    held = look(path)
                    outcome.wrong[path] = "missing here" if held is None else "another size here"
            differing = self._settle(checks)
            if differing and not options.check:
                self._fetch(listing, differing)
            for path in differing if options.check else ():
                outcome.wrong[path] = "other bytes here"
        outcome.wrong.update(
            self.tree.lacking(listing) if options.check else self.tree.complete(listing, self._touched)
        )

    def _settle(self, checks: dict[str, Future[Proof]]) -> list[str]:
        """Note what is proven where it lies and return what has other bytes."""
        differing = []
        for path, check in checks.items():
            try:
                proof = check.result()
            except OSError as error:
                self.outcome.wrong[path] = f"what is here cannot be read: {error.strerror}; move it away"
                continue
            if proof == "verified":
                self.outcome.states[path] = "verified"
            elif proof == "no hash":
                self.outcome.states[path] = "size-matched"
                self.outcome.wrong.setdefault(path, "only its size is known to match: the far side gave no hash")
            else:
                differing.append(path)
        return differing

    def _prove_held(self, path: str) -> Proof:
        """Hold what lies here against all that is known of the far file."""
        try:
            return self._prove(path, lambda algorithm: hash_file(f"{self.base.root}/{path}", algorithm, fresh=True)[0])
        except FileNotFoundError:
            return "missing"

    def _prove(self, path: str, digest_by: Callable[[str], str]) -> Proof:
        assert self.listing  # noqa: S101 (set before any work)
        expected = self.listing.expected(path)
        for wanted in expected:
            algorithm, _, digest = wanted.partition(":")
            if digest_by(algorithm) != digest:
                return "other bytes"
        return "verified" if expected else "no hash"

    def _fetch(self, listing: Listing, paths: list[str]) -> None:
        """Fetch files and land each as soon as it is complete and proven; twice where the proof fails."""
        waiting = [path for path in paths if path not in self.outcome.wrong]
        for last in (False, True):
            if not waiting:
                return
            proofs: dict[str, Proof] = {}

            def land(path: str, fd: int, proofs: dict[str, Proof] = proofs) -> None:
                proofs[path] = self._land(listing, path, fd)

            total = sum(listing.files[path].size or 0 for path in waiting)
            landing = None
            try:
                with self.base.wire.turn(total) as turn:
                    self._make_room([listing.files[path] for path in waiting])
                    self.base.planned(total)
                    landing = Landing(self.base.staging, waiting, lambda path: listing.files[path].mode, land)
                    self._transfer(listing, waiting, landing, turn)
            finally:
                if landing:
                    landing.finish()
                    self.outcome.wrong.update(landing.trouble)
                waiting = [path for path in waiting if proofs.get(path) not in {"verified", "no hash"}]
            if last:
                for path in waiting:
                    why = "fetched twice, and both times its bytes did not match" if path in proofs else "did not come"
                    self.outcome.wrong.setdefault(path, why)

    def _transfer(self, listing: Listing, paths: list[str], landing: Landing, turn: Turn) -> None:
        base, options = self.base, self.base.options
        paths = sorted(paths, key=os.fsencode)
        before = self._tally = come = 0
        large = True

        def progress(count: int) -> None:
            base.moved(before + count - self._tally)
            self._tally = before + count
            turn.at(self._tally)

        def arrived(path: str) -> None:
            nonlocal come
            if not large:
                come += listing.files[path].size or 0 if path in listing.files else 0
                progress(come)
            landing.arrived(path)

        if base.rsync and local_rsync():
            try:
                for holes in (False, True):
                    names = [path for path in paths if listing.files[path].may_have_holes is holes]
                    before, come = self._tally, 0
                    large = sum(listing.files[path].size or 0 for path in names) > _LARGE * len(names)
                    if names:
                        by_rsync(
                            base.address,
                            names,
                            base.staging,
                            base.lock,
                            large=large,
                            holes=holes,
                            compress=options.compress,
                            silence=options.silence,
                            arrived=arrived,
                            progress=progress,
                        )
                return
            except NoRsyncError:
                base.rsync = False
        if not base.tar:
            raise FarError("far side", f"{base.address.host}: has neither rsync nor tar; install one of them there")
        by_tar(
            base.address,
            paths,
            base.staging,
            silence=options.silence,
            arrived=landing.arrived,
            failed=landing.trouble.__setitem__,
            progress=progress,
        )

    def _make_room(self, files: list[FarFile]) -> None:
        """Ask for room, and make the files, empty, that are not staged yet: that is the trial of inodes."""
        with self.base.room:
            new, unknown, counted = [], [], 0
            for file in files:
                try:
                    there = os.lstat(f"{self.base.staging}/{file.path}").st_blocks * 512
                except OSError:
                    there = 0
                    if file.mode is None:
                        unknown.append(file.size or 0)
                    else:
                        new.append(file.path)
                counted += max(0, (file.allocated or file.size or 0) - there)
            reserve = check_room(self.base.root, unknown, 0, counted, (self.base.staging, new))
            if reserve:
                reserve.release()

    def _land(self, listing: Listing, path: str, fd: int) -> Proof:
        """Prove a staged file that is durable, and give it its name; a bad one is thrown away. Raises OSError."""
        staged, size = f"{self.base.staging}/{path}", os.fstat(fd).st_size
        proof = self._prove(path, lambda algorithm: hash_fresh(fd, size, algorithm)[0])
        if proof == "other bytes":
            os.unlink(staged)  # noqa: PTH108 (as above)
            return proof
        if proof == "no hash" and not listing.complete:
            return "missing"  # the link dropped before its hash came: it stays staged for the next attempt
        folder = path.rpartition("/")[0]
        with self._lock:
            if folder not in self._made:
                self._touched |= make_folders(self.base.root, folder)
                self._touched.add(self.base.root / folder)
                self._made.add(folder)
            os.rename(staged, f"{self.base.root}/{path}")  # noqa: PTH104 (many)
            self._fetched[path] = size
        if proof == "verified":
            self.outcome.states[path] = "verified"
        else:
            self.outcome.states[path] = "size-matched" if size == listing.files[path].size else "copied"
            self.outcome.wrong.setdefault(path, f"{self.outcome.states[path]} only: the far side gave no hash")
        return proof


def _read_hashes(records: Any, listing: Listing, failed: list[FarError]) -> None:
    try:
        for record in records:
            listing.add(record)
        listing.complete = True
    except FarError as error:
        failed.append(error)
    finally:
        listing.end()

"""One folder of a pull: fetched into staging, proven there, and only then given its name."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from underfed.carry.far import Address, FarError, Session
from underfed.carry.far_script import walk_script
from underfed.carry.fetch import NoRsyncError, by_rsync, by_tar, local_rsync
from underfed.carry.hashing import hash_file
from underfed.carry.links import link_trouble
from underfed.carry.listing import FarFile, Listing
from underfed.carry.local import make_folders, sync_folder
from underfed.carry.names import shown
from underfed.carry.preflight import PERMANENT, check_room
from underfed.carry.unit_outcome import PullOptions, UnitOutcome

Proof = Literal["verified", "other bytes", "no hash", "missing"]


@dataclass
class Base:
    """What all folders of a pull share."""

    address: Address
    root: Path
    staging: Path
    lock: int
    options: PullOptions
    python: bool
    rsync: bool
    tar: bool
    planned: Callable[[int], None]
    moved: Callable[[int], None]
    room: threading.Lock = field(default_factory=threading.Lock)


class UnitPull:
    """Pulls the names of one unit (a folder, or the loose files beside the folders), again until it is proven."""

    def __init__(self, base: Base, label: str, names: list[str]) -> None:
        self.base, self.names = base, names
        self.outcome = UnitOutcome(label)
        self.listing: Listing | None = None
        self._known: dict[tuple[str, int | None, int | None], set[str]] = {}
        self._trust = True
        self._lock = threading.Lock()
        self._touched: set[Path] = set()
        self._tally = 0

    def signature(self) -> int:
        """Return a number that grows when something was brought home: bytes in staging and files in place."""
        total = self.outcome.fetched_bytes + self.outcome.fetched_files
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
        outcome.notes = list(listing.notes)
        outcome.bytes = sum(file.size or 0 for file in listing.files.values())
        fetch, same_size = [], []
        for path, file in listing.files.items():
            held = self._held(path)
            if isinstance(held, str):
                outcome.wrong[path] = held
            elif held is not None and (file.size is None or held.st_size == file.size):
                same_size.append(path)
            else:
                fetch.append(path)
        with ThreadPoolExecutor(2) as pool:
            checks = {path: pool.submit(self._prove, self.base.root / path, path) for path in same_size}
            if not options.check:
                self._fetch(listing, fetch, pool)
            else:
                for path in fetch:
                    held = self._held(path)
                    outcome.wrong[path] = "missing here" if held is None else "another size here"
            differing = self._settle(checks)
            if differing and not options.check:
                self._fetch(listing, differing, pool)
            for path in differing if options.check else ():
                outcome.wrong[path] = "other bytes here"
        if not options.check:
            self._folders_and_links(listing)
        else:
            self._check_links(listing)

    def _settle(self, checks: dict[str, Future[Proof]]) -> list[str]:
        """Note what is proven where it lies and return what has other bytes."""
        differing = []
        for path, check in checks.items():
            proof = check.result()
            if proof == "verified":
                self.outcome.states[path] = "verified"
            elif proof == "no hash":
                self.outcome.states[path] = "size-matched"
                self.outcome.wrong.setdefault(path, "only its size is known to match: the far side gave no hash")
            else:
                differing.append(path)
        return differing

    def _held(self, path: str) -> os.stat_result | str | None:
        """Look at the local file without following a link anywhere below the destination."""
        at = self.base.root
        for part in path.split("/"):
            at /= part
            try:
                state = at.lstat()
            except FileNotFoundError:
                return None
            except OSError as error:
                return str(error.strerror)
            if stat.S_ISLNK(state.st_mode):
                return f"{shown(at)} is a link here; it is not written through; move it away"
        return state if stat.S_ISREG(state.st_mode) else "something other than a file is here; move it away"

    def _prove(self, at: Path, path: str) -> Proof:
        """Hash a local file from the disk against all that is known of the far one."""
        assert self.listing  # noqa: S101 (set before any work)
        expected = self.listing.expected(path)
        if not expected:
            return "no hash"
        try:
            for wanted in expected:
                algorithm, _, digest = wanted.partition(":")
                if hash_file(at, algorithm, fresh=True)[0] != digest:
                    return "other bytes"
        except FileNotFoundError:
            return "missing"
        return "verified"

    def _fetch(self, listing: Listing, paths: list[str], pool: ThreadPoolExecutor) -> None:
        """Fetch files and land each as soon as it is complete and proven; twice where the proof fails."""
        waiting = [path for path in paths if path not in self.outcome.wrong]
        for last in (False, True):
            if not waiting:
                return
            self._check_room([listing.files[path] for path in waiting])
            self.base.planned(sum(listing.files[path].size or 0 for path in waiting))
            landings: dict[str, Future[Proof]] = {}

            def arrived(
                path: str, landings: dict[str, Future[Proof]] = landings, due: frozenset[str] = frozenset(waiting)
            ) -> None:
                if path in due and path not in landings:
                    landings[path] = pool.submit(self._land, listing, path)

            try:
                self._transfer(waiting, arrived)
            finally:
                proofs = {path: landing.result() for path, landing in landings.items()}
                again = [path for path in waiting if proofs.get(path) not in {"verified", "no hash"}]
            waiting = again
            if last:
                for path in waiting:
                    why = "fetched twice, and both times its bytes did not match" if path in proofs else "did not come"
                    self.outcome.wrong.setdefault(path, why)

    def _transfer(self, paths: list[str], arrived: Callable[[str], None]) -> None:
        base, options = self.base, self.base.options
        paths = sorted(paths, key=os.fsencode)

        def progress(count: int) -> None:
            base.moved(count - self._tally)
            self._tally = count

        self._tally = 0
        if base.rsync and local_rsync():
            try:
                by_rsync(
                    base.address,
                    paths,
                    base.staging,
                    base.lock,
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
        by_tar(base.address, paths, base.staging, silence=options.silence, arrived=arrived, progress=progress)

    def _check_room(self, files: list[FarFile]) -> None:
        with self.base.room:
            sizes, counted = [], 0
            for file in files:
                try:
                    there = (self.base.staging / file.path).lstat().st_blocks * 512
                except OSError:
                    there = 0
                    sizes.append(file.size or 0)
                counted += max(0, (file.allocated or file.size or 0) - there)
            check_room(self.base.root, sizes, 0, counted)

    def _land(self, listing: Listing, path: str) -> Proof:
        """Make a staged file durable, prove it, and give it its name; a bad one is thrown away."""
        file = listing.files[path]
        staged, final = self.base.staging / path, self.base.root / path
        try:
            fd = os.open(staged, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fsync(fd)
                if file.mode is not None:
                    os.fchmod(fd, (file.mode & 0o777) | 0o400)
                size = os.fstat(fd).st_size
            finally:
                os.close(fd)
            proof = self._prove(staged, path)
            if proof == "other bytes":
                staged.unlink()
                return proof
            if proof == "no hash" and not listing.complete:
                return "missing"  # the link dropped before its hash came: it stays staged for the next attempt
            with self._lock:
                self._touched |= make_folders(self.base.root, path.rpartition("/")[0])
                self._touched.add(final.parent)
                staged.rename(final)
                self.outcome.fetched_files += 1
                self.outcome.fetched_bytes += size
        except OSError as error:
            if error.errno in PERMANENT:
                raise FarError("local", f"{shown(path)}: {error.strerror}") from error
            self.outcome.wrong[path] = str(error.strerror)
            return "missing"
        if proof == "verified":
            self.outcome.states[path] = "verified"
        else:
            self.outcome.states[path] = "size-matched" if size == file.size else "copied"
            self.outcome.wrong.setdefault(path, f"{self.outcome.states[path]} only: the far side gave no hash")
        return proof

    def _folders_and_links(self, listing: Listing) -> None:
        for folder in listing.folders:
            try:
                self._touched |= make_folders(self.base.root, folder)
            except OSError as error:  # noqa: PERF203 (each folder fails by itself)
                self.outcome.wrong[folder] = str(error.strerror)
        for path, target in listing.links.items():
            why = link_trouble(path, target, refuse=self.base.options.links == "refuse")
            if why is None:
                with contextlib.suppress(FileNotFoundError):
                    why = self._make_link(path, target)
            if why:
                self.outcome.wrong[path] = why
        for touched in sorted(self._touched):
            with contextlib.suppress(FileNotFoundError):
                sync_folder(touched)
        self._touched.clear()

    def _make_link(self, path: str, target: str) -> str | None:
        final = self.base.root / path
        try:
            self._touched |= make_folders(self.base.root, path.rpartition("/")[0])
            if final.is_symlink() and str(final.readlink()) == target:
                return None
            if os.path.lexists(final) and not final.is_symlink():
                return "a link there, something else here; move it away"
            staged = self.base.staging / path
            make_folders(self.base.staging, path.rpartition("/")[0])
            staged.unlink(missing_ok=True)
            staged.symlink_to(target)
            staged.rename(final)
            self._touched.add(final.parent)
        except OSError as error:
            return f"link cannot be made: {error.strerror or errno.errorcode.get(error.errno or 0, '')}"
        return None

    def _check_links(self, listing: Listing) -> None:
        for path, target in listing.links.items():
            why = link_trouble(path, target, refuse=self.base.options.links == "refuse")
            final = self.base.root / path
            if why is None and not (final.is_symlink() and str(final.readlink()) == target):
                why = "the link is not here"
            if why:
                self.outcome.wrong[path] = why
        for folder in listing.folders:
            if not (self.base.root / folder).is_dir():
                self.outcome.wrong[folder] = "the folder is not here"


def _read_hashes(records: Any, listing: Listing, failed: list[FarError]) -> None:
    try:
        for record in records:
            listing.add(record)
        listing.complete = True
    except FarError as error:
        failed.append(error)
    finally:
        listing.end()

"""`pull`: bring result folders home over a link that drops, and say whether the far side may be let go."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from underfed.carry.contact import Contact, contact, top
from underfed.carry.far import Address, FarError, Record, stop_all
from underfed.carry.links import dead_links
from underfed.carry.listing import Listing
from underfed.carry.local import take_lock
from underfed.carry.names import INCOMING, plural, shown, size_text
from underfed.carry.preflight import PERMANENT, clear_left_probes
from underfed.carry.unit import Base, UnitPull
from underfed.carry.unit_outcome import PullOptions, UnitOutcome
from underfed.carry.wire import Wire
from underfed.errors import UnderfedError, UsageError

_TRIES = 3
#: Folders go by one session as long as they have no more bytes and files than this together.
_TOGETHER_BYTES, _TOGETHER = 256 << 20, 20_000
_LOCK_PATIENCE = 10.0


@dataclass
class Pull:
    """The outcome of a whole pull."""

    address: Address
    destination: str
    units: list[UnitOutcome] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    empty: bool = False
    stopped: bool = False

    @property
    def verified(self) -> bool:
        """Whether everything there is proven here."""
        return not self.reasons and all(unit.verified for unit in self.units)

    @property
    def exit_code(self) -> int:
        """0 if all is verified or nothing was there, 2 if it stopped before anything came, else 1."""
        if self.empty or self.verified:
            return 0
        return 2 if self.stopped and not any(unit.states for unit in self.units) else 1

    def release(self) -> str:
        """Return the last line."""
        if self.empty:
            return "safe to release: no (nothing was there)"
        if self.verified:
            files = sum(len(unit.states) for unit in self.units)
            return f"safe to release: yes (all {plural(files, 'file')} read back here and equal to those there)"
        bad = [unit for unit in self.units if not unit.verified]
        reasons = (
            [f"{plural(len(bad), 'folder')} not verified: {', '.join(shown(u.name) for u in bad[:5])}"] if bad else []
        )
        return f"safe to release: no ({'; '.join([*self.reasons, *reasons])})"

    def summary(self) -> list[str]:
        """Return the last lines."""
        if self.empty:
            return [f"{shown(self.address.host)}:{shown(self.address.path)} is empty", self.release()]
        good = [unit for unit in self.units if unit.verified]
        return [
            f"{plural(len(good), 'folder')} verified, {len(self.units) - len(good)} not; "
            f"{plural(sum(u.count('verified') for u in self.units), 'file')} verified, "
            f"{size_text(sum(u.fetched_bytes for u in self.units))} fetched now",
            self.release(),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the whole as one JSON object."""
        return {
            "schema": "underfed.pull/1",
            "source": f"{shown(self.address.host)}:{shown(self.address.path)}",
            "destination": shown(self.destination),
            "exit_code": self.exit_code,
            "empty": self.empty,
            "safe_to_release": self.verified and not self.empty,
            "release": self.release(),
            "reasons": self.reasons,
            "folders": [unit.as_json() for unit in self.units],
        }


class Watcher:
    """Hears how a pull goes; this one says nothing."""

    def expect(self, folders: int) -> None:
        """So many folders will be looked at."""

    def planned(self, count: int) -> None:
        """So many more bytes are to come."""

    def moved(self, count: int) -> None:
        """So many more bytes came."""

    def retry(self, name: str, why: str, seconds: float) -> None:
        """A link dropped and is tried again after a pause."""

    def done(self, unit: UnitOutcome) -> None:
        """A folder is done."""


def pull(address: Address, root: Path, options: PullOptions, watcher: Watcher) -> Pull:
    """Bring everything in a far folder into `root` and prove it.

    Raises UsageError when it cannot start: unreachable, host key, login, wrong path, or no writable destination.
    """
    found = _first_contact(address, options, watcher)
    try:
        return _all_of(found, address, root, options, watcher)
    finally:
        found.close()


def _all_of(found: Contact, address: Address, root: Path, options: PullOptions, watcher: Watcher) -> Pull:
    result = Pull(address, str(root))
    if not (found.folders or found.loose or found.strange):
        result.empty = True
        return result
    with _destination(root, check=options.check) as (staging, lock):
        base = Base(
            address,
            root,
            staging,
            lock,
            options,
            found.python,
            "rsync" in found.tools,
            "tar" in found.tools,
            watcher.planned,
            watcher.moved,
            Wire(options.workers),
        )
        jobs = [UnitPull(base, parts) for parts in _sessions(found, options.workers)]
        if found.guide:
            for job, listing in zip(jobs, found.guide.listings([job.names for job in jobs]), strict=True):
                job.follow(found.guide, listing)
        watcher.expect(sum(len(job.parts) for job in jobs))
        clock = _Clock(options.retry_for)
        # Two more than may be on the wire: the next one is ready when it is free, and the last one is being proven.
        with ThreadPoolExecutor(max(1, options.workers) + 2) as pool:
            waiting = [pool.submit(_persist, job, clock, result, watcher) for job in jobs]
            try:
                for done in waiting:
                    result.units += done.result()
            except BaseException:  # an interrupt: what is under way is ended, not waited for
                result.stopped = True
                clock.halted.set()
                while not all(done.cancel() or done.done() for done in waiting):
                    stop_all()
                    time.sleep(0.05)
                raise
        result.reasons += [f"a name there is no name here: {shown(name)}" for name in found.strange]
        result.reasons += _dead(root, jobs)
        for job in jobs:
            for name in job.linked():
                watcher.done(job.outcomes[name])
        if result.verified:
            result.reasons += _changed_meanwhile(base, jobs, found)
    return result


def _sessions(found: Contact, workers: int) -> list[dict[str, list[str]]]:
    """Return what goes by one session each: a folder, or neighbours that are small, since a session has its price."""
    sizes: dict[str, int] = {}
    counts: dict[str, int] = {}
    for record in found.listed if found.guide else ():
        if record.kind == "f":
            first = record.path.split("/")[0]
            sizes[first] = sizes.get(first, 0) + (record.size or 0)
            counts[first] = counts.get(first, 0) + 1
    most = min(_TOGETHER_BYTES, sum(sizes.values()) // workers), min(_TOGETHER, sum(counts.values()) // workers)
    sessions: list[dict[str, list[str]]] = []
    size = count = 0
    for name in found.folders:
        size, count = size + sizes.get(name, 0), count + counts.get(name, 0)
        if not sessions or not found.guide or size > most[0] or count > most[1]:
            sessions.append({})
            size, count = sizes.get(name, 0), counts.get(name, 0)
        sessions[-1][name] = [name]
    return [*sessions, {"(loose files)": found.loose}] if found.loose else sessions


class _Clock:
    """When something last came home; shared by all folders."""

    def __init__(self, retry_for: float) -> None:
        self.retry_for = retry_for
        self.halted = threading.Event()
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def progress(self) -> None:
        with self._lock:
            self._last = time.monotonic()

    def expired(self) -> bool:
        with self._lock:
            return time.monotonic() - self._last > self.retry_for


def _persist(job: UnitPull, clock: _Clock, result: Pull, watcher: Watcher) -> list[UnitOutcome]:
    """Try what goes by one session until it is done, nothing more comes, or the error is one that stays."""
    seen, pause = job.signature(), 1.0
    while True:
        if result.stopped:
            job.outcome.failure = "not reached"
            break
        try:
            job.attempt()
            clock.progress()
            job.outcome.failure = None
            break
        except FarError as error:
            job.outcome.failure = str(error)
            if not error.transient:
                result.stopped = True
                break
            now = job.signature()
            if now > seen:
                clock.progress()
                seen, pause = now, 1.0
            if clock.expired():
                break
            watcher.retry(job.outcome.name, str(error), pause)
            clock.halted.wait(pause)
            pause = min(30.0, pause * 2)
        except UnderfedError as error:
            job.outcome.failure = str(error)
            result.stopped = True
            break
        except OSError as error:  # of a folder or a disk here
            job.outcome.failure = f"{shown(error.filename or result.destination)}: {error.strerror}"
            result.stopped |= error.errno in PERMANENT
            break
    outcomes = job.end()
    for outcome in outcomes:
        if outcome.name not in job.linked():
            watcher.done(outcome)
    return outcomes


def _first_contact(address: Address, options: PullOptions, watcher: Watcher) -> Contact:
    for attempt in range(_TRIES):
        try:
            return contact(address, options.silence)
        except FarError as error:  # noqa: PERF203 (three rounds)
            if not error.transient or attempt == _TRIES - 1:
                raise UsageError(f"pull: {error.trouble}: {error}") from error
            watcher.retry(address.host, str(error), 2.0**attempt)
            time.sleep(2.0**attempt)
    raise AssertionError


@contextlib.contextmanager
def _destination(root: Path, *, check: bool) -> Iterator[tuple[Path, int]]:
    """Make and lock the staging folder; gone again when it is empty. Nothing is made for a check."""
    staging = root / INCOMING
    if check:
        yield staging, -1
        return
    try:
        root.mkdir(parents=True, exist_ok=True)
        staging.mkdir(exist_ok=True)
        lock = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"pull: {shown(root)}: cannot be written: {error.strerror}; name another DST") from error
    try:
        take_lock(lock, root, _LOCK_PATIENCE)
        clear_left_probes(root)
        yield staging, lock
        _sweep_empty(staging)
    finally:
        os.close(lock)


def _sweep_empty(staging: Path) -> None:
    for at, _, _ in os.walk(staging, topdown=False):
        with contextlib.suppress(OSError):
            Path(at).rmdir()


def _dead(root: Path, jobs: list[UnitPull]) -> list[str]:
    """Look at the links when all folders are here, since one may lead into another folder."""
    reasons = []
    for job in jobs:
        links = job.listing.links if job.listing else {}
        for path in dead_links(root, list(links)):
            job.part(path).wrong.setdefault(path, f"dead link to {shown(links[path])}")
            reasons.append(f"dead link {shown(path)} to {shown(links[path])}")
    return reasons


def _changed_meanwhile(base: Base, jobs: list[UnitPull], found: Contact) -> list[str]:
    """Look at the far side once more: what changed since its files were listed is not what was proven."""
    try:
        again = _look_again(base, jobs, found)
    except FarError as error:
        return [f"whether something changed there meanwhile could not be seen: {error}"]
    if again is None:
        return []
    folders, loose, _ = top(again)
    names = folders + loose
    new = sorted(set(names) - set(found.folders + found.loose))
    reasons = [f"new there since the start: {shown(name)}" for name in new]
    if base.python:
        later = Listing(names)
        for record in again:
            later.add(record)
        before: dict[str, Any] = {}
        for job in jobs:
            before.update(job.listing.state() if job.listing else {})
        state = later.state()
        changed = sorted(path for path in before.keys() | state.keys() if before.get(path) != state.get(path))
        changed = [path for path in changed if path.split("/")[0] not in new]
        reasons += (
            [f"changed there meanwhile: {plural(len(changed), 'file')}, such as {shown(changed[0])}"] if changed else []
        )
    return reasons


def _look_again(base: Base, jobs: list[UnitPull], found: Contact) -> list[Record] | None:
    """Return what is in the far folder now, by the session that is open where one is; None for what was listed."""
    if found.guide:
        with contextlib.suppress(FarError):
            again = found.guide.again()
            return again if again is not None or all(job.guided for job in jobs) else found.listed
    fresh = contact(base.address, base.options.silence)
    fresh.close()
    return fresh.listed

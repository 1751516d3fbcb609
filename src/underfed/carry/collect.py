"""`collect`: sweep finished runs into durable storage, and say of each whether the copy is proven."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from underfed.carry.copies import as_carry_error
from underfed.carry.crew import Crew, hands
from underfed.carry.decide import Comparison, compare, verdict
from underfed.carry.growing import OpenFiles
from underfed.carry.manifest import Entry, Manifest
from underfed.carry.names import shown
from underfed.carry.outcome import RunOutcome, Sweep
from underfed.carry.runs import Run, find_runs, roster_gaps
from underfed.carry.store import BusyError, CarryError, RunPlace, Store
from underfed.carry.take import Choice, Source, Taken, take_files
from underfed.errors import UsageError

#: How long a file that is open for writing or still changes is waited for, in seconds.
PATIENCE = 5.0
#: A file younger than this may be written again within the same tick of its clock, in seconds.
_TICK = 0.05
_TRIES = 3
#: From so many files, or bytes, on, several processes share the runs.
_MANY, _MUCH = 100, 256 << 20
_NOT_REACHED = "not reached"


@dataclass
class Options:
    """What the user asked for."""

    marker: str = "best_metrics.json"
    choice: Choice = field(default_factory=Choice)
    roster: list[str] | None = None
    force: bool = False
    check: bool = False
    patience: float = PATIENCE


@dataclass
class _Job:
    run: Run
    taken: Taken
    outcome: RunOutcome

    @property
    def time_ns(self) -> int:
        times = [f.mtime_ns for path, f in self.taken.files.items() if path in self.run.markers]
        return max(times or (f.mtime_ns for f in self.taken.files.values()), default=0)


def collect(source: Path, store: Store, options: Options, say: Callable[[RunOutcome], None]) -> Sweep:
    """Carry every finished run below `source` into `store`; `say` hears of each as it ends.

    Raises UsageError when nothing can be started: no source, no writable or no large enough destination.
    """
    if not source.is_dir():
        raise UsageError(f"collect: {shown(source)}: no such folder; give the folder that holds the runs")
    found = find_runs(source, options.marker)
    sweep = Sweep(str(source), store.name, skipped=found.skipped)
    sweep.gaps = roster_gaps(options.roster, found) if options.roster is not None else []
    nested = {run.path for run in found.runs}
    jobs = []
    for run in found.runs:
        taken = take_files(run, source, options.choice, nested - {run.path})
        outcome = RunOutcome(run.path, notes=list(taken.notes), reasons=list(taken.wrong))
        if options.roster is not None:
            outcome.in_roster = run.path in options.roster or run.name in options.roster
        jobs.append(_Job(run, taken, outcome))
    if not options.check:
        store.prepare()
        _preflight(jobs, store)
    try:
        _each(jobs, sweep, store, options, say)
    finally:
        store.release()
    sweep.space = store.space_text()
    return sweep


def _each(jobs: list[_Job], sweep: Sweep, store: Store, options: Options, say: Callable[[RunOutcome], None]) -> None:
    sweep.runs += [job.outcome for job in jobs]
    files = sum(len(job.taken.files) for job in jobs)
    much = sum(job.taken.bytes for job in jobs) >= _MUCH
    count = hands(len(jobs)) if (files >= _MANY or much) and store.shared else 1
    if count > 1:
        _shared_out(jobs, sweep, store, options, say, count)
        return
    open_files = OpenFiles()
    for job in jobs:
        if sweep.stopped:
            job.outcome.fail(_NOT_REACHED)
        else:
            sweep.stopped = _whole(job, store, options, open_files)
        say(job.outcome)


def _shared_out(  # noqa: PLR0917 (as `_each`)
    jobs: list[_Job], sweep: Sweep, store: Store, options: Options, say: Callable[[RunOutcome], None], count: int
) -> None:
    """Have several processes carry the runs; they are told of in order."""
    open_files = OpenFiles()
    done: set[int] = set()
    said = 0

    def work(process: int, number: int) -> bytes:
        store.keep_share(process, count)
        stopped = _whole(jobs[number], store, options, open_files)
        return json.dumps({"outcome": vars(jobs[number].outcome), "stopped": stopped}).encode("ascii")

    def heard(number: int, answer: bytes | None) -> bool:
        nonlocal said
        if answer is None:
            jobs[number].outcome.fail("the process that carried it was ended")
        else:
            came = json.loads(answer)
            vars(jobs[number].outcome).update(came["outcome"])
            sweep.stopped = sweep.stopped or came["stopped"]
        done.add(number)
        while said in done:
            say(jobs[said].outcome)
            said += 1
        return not sweep.stopped

    with Crew(count, work) as crew:
        crew.share(len(jobs), heard)
    for number, job in enumerate(jobs):
        if number not in done:
            job.outcome.fail(_NOT_REACHED)
        if number >= said:
            say(job.outcome)


def _whole(job: _Job, store: Store, options: Options, open_files: OpenFiles) -> str | None:
    """Carry one run; returns why nothing more can be written, if that is so."""
    try:
        _one(job, store, options, open_files)
    except (CarryError, BusyError) as error:
        changed = isinstance(error, CarryError) and error.changed
        job.outcome.fail(str(error), "growing" if changed else "unverified")
        return str(error) if isinstance(error, CarryError) and error.permanent else None
    except OSError as error:  # of a folder, a time or a manifest of the run's own
        failed = as_carry_error(str(error.filename or job.run.path), error)
        job.outcome.fail(str(failed))
        return str(failed) if failed.permanent else None
    return None


def _preflight(jobs: list[_Job], store: Store) -> None:
    """Ask for room for everything that the destination does not seem to hold yet."""
    sizes: list[int] = []
    folders = counted = 0
    for job in jobs:
        with store.run(job.run.path, write=False) as place:
            try:
                manifest = place.manifest()[0]
            except CarryError:
                continue  # said when the run's turn comes
            if manifest and manifest.time_ns > job.time_ns:
                continue
            new = []
            for path, file in job.taken.files.items():
                try:
                    at = place.held(path)
                except CarryError:
                    continue  # as above
                if at is None or at.size != file.size or (at.mtime_ns or file.mtime_ns) != file.mtime_ns:
                    new.append(file)
            if new:
                sizes += [file.size for file in new] + [0]
                counted += sum(file.allocated for file in new)
                folders += len({path.rpartition("/")[0] for path in job.taken.files}) + 1
    store.check_room(sizes, folders, counted)


def _one(job: _Job, store: Store, options: Options, open_files: OpenFiles) -> None:
    if not job.taken.files:
        job.outcome.fail("none of its files is taken")
        return
    _wait_until_still(job, options.patience, open_files)
    with store.run(job.run.path, write=not options.check) as place:
        found = compare(job.taken.files, place)
        decision, why = verdict(found, job.time_ns, job.run.markers, force=options.force)
        if decision == "conflict":
            job.outcome.fail(why, "conflict")
        elif decision == "kept-out":
            _keep_out(job, place, found, why)
        elif options.check:
            _check(job, found, why)
        else:
            _carry(job, place, found, why)


def _wait_until_still(job: _Job, patience: float, open_files: OpenFiles) -> None:
    """Wait for files that are open for writing or changing. Raises CarryError when they do not come to rest."""
    deadline = time.monotonic() + patience
    while True:
        why = _restless(job, open_files)
        if why is None:
            return
        if time.monotonic() > deadline:
            raise CarryError(f"{why}; skipped, run collect again when it is done", changed=True)
        time.sleep(min(0.2, patience))
        open_files.again()
        for path, file in list(job.taken.files.items()):
            try:
                state = os.stat(file.real)  # noqa: PTH116 (thousands of them)
            except OSError as error:
                raise CarryError(f"{shown(path)}: vanished while it was waited for", changed=True) from error
            allocated = min(state.st_size, state.st_blocks * 512)
            identity = (state.st_dev, state.st_ino)
            job.taken.files[path] = Source(
                path, file.real, state.st_size, state.st_mtime_ns, state.st_mode, allocated, identity
            )


def _restless(job: _Job, open_files: OpenFiles) -> str | None:
    now = time.time_ns()
    for path, file in job.taken.files.items():
        writer = open_files.writer(file.identity)
        if writer is not None:
            return f"{shown(path)}: open for writing by process {writer}"
        if 0 <= now - file.mtime_ns < _TICK * 1e9:
            time.sleep(_TICK)
    return _changed(job)


def _changed(job: _Job) -> str | None:
    for path, file in job.taken.files.items():
        try:
            state = os.stat(file.real)  # noqa: PTH116 (as above)
        except OSError as error:
            return f"{shown(path)}: {error.strerror}"
        seen = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns)
        if seen != (*file.identity, file.size, file.mtime_ns):
            return f"{shown(path)}: still being written"
    return None


def _carry(job: _Job, place: RunPlace, found: Comparison, why: str) -> None:
    files, outcome = job.taken.files, job.outcome
    verified = {path: found.source_hash[path] for path in files if path not in found.todo}
    if any(path in found.held for path in found.todo):
        place.withdraw()
    # The marker goes last: until then the destination still says that it holds the older run, or none.
    markers = [path for path in found.todo if path in job.run.markers]
    for batch in ([path for path in found.todo if path not in markers], markers):
        _batch(batch, job, place, verified)
        if len(outcome.reasons) > len(job.taken.wrong):
            return
    old = found.old
    entries = {path: Entry(path, file.size, file.mtime_ns, verified[path], "verified") for path, file in files.items()}
    time_ns = job.time_ns
    if old is not None and old.time_ns < time_ns:
        outcome.replaced += filter(None, (place.set_aside(path) for path in old.entries if path not in entries))
    elif old is not None:
        time_ns = old.time_ns
        entries.update(_kept(old, place, entries))
    for path in verified:
        place.settle(files[path])
    changed = _changed(job)
    if changed:
        raise CarryError(f"{changed}; it changed while the run was copied", changed=True)
    outcome.files, outcome.bytes = len(files), job.taken.bytes
    if job.taken.wrong:
        return
    manifest = Manifest(job.run.name, job.run.markers[0], time_ns, entries)
    place.finish(manifest)
    repaired = bool(found.todo) and not found.differing and bool(found.manifest)
    outcome.status, outcome.digest = "verified", manifest.digest
    outcome.action = "repaired" if repaired else why
    if found.problem:
        outcome.notes.append(f"the manifest that was there could not be used: {found.problem}")


def _batch(paths: list[str], job: _Job, place: RunPlace, verified: dict[str, str]) -> None:
    """Carry files, again after a pause where the error is one that passes; the first permanent error ends it."""
    outcome = job.outcome
    sources = [job.taken.files[path] for path in paths]
    for attempt in range(_TRIES):
        passing = []
        with contextlib.closing(place.carry_all(sources)) as all_of_them:
            for source, came in all_of_them:
                if isinstance(came, str):
                    verified[source.path] = came
                    outcome.copied_files += 1
                    outcome.copied_bytes += source.size
                elif came.permanent or came.changed:
                    raise came
                elif came.transient and attempt < _TRIES - 1:
                    passing.append(source)
                else:
                    outcome.fail(str(came))
        if not passing:
            return
        sources = passing
        time.sleep(0.5 * 2**attempt)


def _kept(old: Manifest, place: RunPlace, entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries of the same run that are not taken this time and still have their bytes."""
    kept = {}
    for path, entry in old.entries.items():
        if path in entries:
            continue
        try:
            if place.held(path) is not None and place.digest(path) == entry.blake3:
                kept[path] = entry
        except CarryError:
            continue
    return kept


def _keep_out(job: _Job, place: RunPlace, found: Comparison, why: str) -> None:
    """An older source stays out; what stands there must be whole by its own manifest, else the run is not safe."""
    outcome = job.outcome
    if found.manifest is None:
        outcome.fail(f"{why}, and nothing proves that it is whole: it has no manifest")
        return
    lost = [path for path in found.manifest.entries if path not in _kept(found.manifest, place, {})]
    if lost:
        outcome.fail(f"{why}, but {len(lost)} of its files are gone or have other bytes, such as {shown(lost[0])}")
        return
    outcome.status, outcome.action = "kept-out", why
    outcome.notes.append(f"{why}; this older source stays out")


def _check(job: _Job, found: Comparison, why: str) -> None:
    """Say whether the destination proves the source, without writing."""
    outcome = job.outcome
    for path in found.todo:
        outcome.fail(f"{shown(path)}: {'other bytes' if path in found.held else 'missing'} in the destination")
    if found.manifest is None:
        outcome.fail(f"no manifest in the destination{': ' + found.problem if found.problem else ''}")
    if outcome.reasons:
        return
    assert found.manifest is not None  # noqa: S101 (said above)
    outcome.status, outcome.action, outcome.digest = "verified", why, found.manifest.digest
    outcome.files, outcome.bytes = len(job.taken.files), job.taken.bytes

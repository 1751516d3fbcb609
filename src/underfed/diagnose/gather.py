"""From one process's log to numbers: steady steps, region means, places, loader, fetches, epochs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, mode

from underfed.diagnose.steady import Steady, steady_from
from underfed.playbook.evidence import (
    Copy,
    EpochFacts,
    ExchangeFacts,
    FetchFacts,
    LoaderFacts,
    OperatorFacts,
    Spot,
    Sync,
    ThreadFacts,
)
from underfed.recording import records as r
from underfed.recording.read import ProcessLog

_COLUMN = {name: at for at, name in enumerate(r.STEP_COLUMNS)}
_MS = 1e-6
_FEW_READINGS = 5
_ENOUGH_STEPS = 20


@dataclass(frozen=True)
class StepTable:
    """The steps of one process that the figures rest on."""

    rows: list[list[int]]
    kind: int
    warmup: int
    steady: bool
    traced: int

    @property
    def begin(self) -> int:
        """Start of the first steady step on the monotonic clock, in ns."""
        return self.rows[0][_COLUMN["end"]] - self.rows[0][_COLUMN["wall"]]

    @property
    def end(self) -> int:
        """End of the last step, in ns."""
        return self.rows[-1][_COLUMN["end"]]

    def mean(self, column: str) -> float:
        """Mean of a column over the steady steps, times in ms, counts as they are."""
        scale = 1.0 if column in r.STEP_COUNTS else _MS
        return scale * fmean(row[_COLUMN[column]] for row in self.rows)

    def walls(self) -> list[float]:
        """Step times in ms."""
        return [row[_COLUMN["wall"]] * _MS for row in self.rows]

    def regions(self) -> dict[str, float]:
        """Mean of every region in ms a step."""
        return {name: self.mean(name) for name in r.STEP_REGIONS}


def step_table(log: ProcessLog, burst: int = 1) -> StepTable | None:
    """Choose the steps that count: of the best kind of boundary there is, not traced, and after the warm-up."""
    rows = log.step_rows()
    if not rows:
        return None
    by_kind = defaultdict(list)
    for row in rows:
        by_kind[row[_COLUMN["kind"]]].append(row)
    # A single optimizer step among many batches is a fluke (a test step, say), not the loop's boundary.
    most = max(len(group) for group in by_kind.values())
    kind = min((kind for kind, group in by_kind.items() if len(group) >= max(2, most // 100)), default=min(by_kind))
    chosen = by_kind[kind]
    plain = [row for row in chosen if not row[_COLUMN["flags"]] & r.TRACED]
    traced = len(chosen) - len(plain)
    if not plain:
        return None
    found: Steady = steady_from([row[_COLUMN["wall"]] for row in plain], burst)
    return StepTable(plain[found.first :], kind, found.first, found.steady, traced)


def training_loader(log: ProcessLog) -> r.Loader | None:
    """Return the loader that the loop reads most: the last set-up of the one that was described most often or first."""
    loaders = log.of(r.Loader)
    if not loaders:
        return None
    return next(line for line in reversed(loaders) if line.id == loaders[0].id)


def loader_facts(line: r.Loader | None) -> LoaderFacts | None:
    """The loader's set-up as the rules want it."""
    if line is None:
        return None
    return LoaderFacts(
        workers=line.workers,
        batch=line.batch,
        pin=line.pin,
        persistent=line.persistent,
        prefetch=line.prefetch,
        context=line.context,
        length=line.length,
        dataset=line.dataset,
        iterable=line.iterable,
        item_at=line.item_at,
        collate_at=line.collate_at,
        made_at=line.made_at,
    )


def fetch_facts(logs: Iterable[ProcessLog], begin: int, end: int) -> FetchFacts | None:
    """Summarise the fetches that ended between two times of the monotonic clock, in all given processes."""
    rows: list[tuple[int | None, list[int | None]]] = []
    for log in logs:
        for line in log.of(r.Fetches):
            rows += [(line.worker, row) for row in line.rows if len(row) >= 7 and begin <= (row[0] or 0) <= end]
    if not rows:
        return None

    def column(at: int) -> list[float]:
        return [float(row[at] or 0) for _, row in rows]

    walls = [value * _MS for value in column(1)]
    reads = [row[4] for _, row in rows if row[4] is not None]
    by_worker: dict[int, int] = defaultdict(int)
    for worker, _ in rows:
        if worker is not None:
            by_worker[worker] += 1
    ordered = sorted(walls)
    return FetchFacts(
        count=len(rows),
        wall=fmean(walls),
        cpu=fmean(column(2)) * _MS,
        process_cpu=fmean(column(3)) * _MS,
        collate=fmean(column(6)) * _MS,
        samples=fmean(column(5)),
        wall_median=median(walls),
        wall_p95=ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))],
        bytes_read=fmean(reads) if reads else None,
        by_worker=dict(by_worker),
        span_ms=(end - begin) * _MS,
    )


def exchange_facts(log: ProcessLog, warmup: int) -> ExchangeFacts | None:
    """The gradient exchange of the model that exchanges most; the warm-up counts only where nothing else was read.

    torch times the first ten passes and every hundredth after them, so there are few readings: the median is taken.
    """
    by_model: dict[int, list[r.Ddp]] = defaultdict(list)
    for line in log.of(r.Ddp):
        by_model[line.model].append(line)
    found: list[ExchangeFacts] = []
    for every in by_model.values():
        # Before the first optimizer step nothing says how many passes a step has.
        lines = [line for line in every if line.optimizer_steps] or every
        steady = [line for line in lines if line.step > warmup]
        if len(steady) < _FEW_READINGS:  # a few more from the warm-up, but for the passes that set up the buckets
            steady = [line for line in every if line.iteration > 2]
        usable = steady or every
        last = lines[-1]
        # Where no optimizer of torch steps, a step is one backward pass.
        steps = max(1, last.optimizer_steps or last.passes)
        passes, times = last.passes / steps, last.exchanges / steps
        found.append(
            ExchangeFacts(
                total=median(line.exchange for line in usable) * times * _MS,
                exposed=median(max(0, line.exchange - line.overlap) for line in usable) * times * _MS,
                times=times,
                passes=passes,
                readings=len(usable),
                bytes=last.bytes,
                buckets=tuple(last.buckets),
                find_unused=last.find_unused,
                view=last.view,
            )
        )
    return max(found, key=lambda one: one.total, default=None)


def epoch_facts(table: StepTable) -> EpochFacts | None:
    """What the border of an epoch costs, from the steps that made a new iterator."""
    flags, data, start = _COLUMN["flags"], _COLUMN["data"], _COLUMN["start"]
    borders = [row for row in table.rows if row[flags] & r.NEW_EPOCH]
    inner = [row[data] for row in table.rows if not row[flags] & r.NEW_EPOCH]
    if len(borders) < 2 or not inner:
        return None
    usual = median(inner)
    return EpochFacts(
        count=len(borders),
        steps=len(table.rows) / len(borders),
        start_ms=fmean(row[start] for row in borders) * _MS,
        first_wait_ms=fmean(max(0.0, row[data] - usual) for row in borders) * _MS,
    )


def thread_facts(log: ProcessLog, warmup: int) -> ThreadFacts | None:
    """CPU time of the program's Python threads in the steady part; None without others beside the training thread."""
    lines = [line for line in log.of(r.Facts) if line.python_threads and line.step >= warmup]
    if len(lines) < 2 or lines[-1].t <= lines[0].t:
        return None
    first, last = lines[0].python_threads or {}, lines[-1].python_threads or {}
    span = lines[-1].t - lines[0].t

    def cpus(name: str) -> float:
        return max(0.0, float(last.get(name, 0) - first.get(name, 0)) / span)

    # A thread that ended meanwhile takes its time with it, so the difference says less than was used, never more.
    return ThreadFacts(cpus("others"), cpus("training"), int(last.get("count", 0)), last.get("where"))


def skipped_share(table: StepTable) -> float | None:
    """Share of the steady part's batches in steps that took twice the usual number, or more: a scaler skipped some."""
    at = _COLUMN["fetches"]
    fetches = [row[at] for row in table.rows if row[at] > 0]
    if len(fetches) < _ENOUGH_STEPS:
        return None
    usual = mode(fetches)
    return sum(count - usual for count in fetches if count > usual and count % usual == 0) / sum(fetches)


_Stack = tuple[str | None, str, str, str, int, int]


def stacks_since(log: ProcessLog, warmup_index: int) -> list[_Stack]:
    """Stack samples of the flushes whose steps lie behind the warm-up; all of them where those are too few."""
    kept: list[_Stack] = []
    everything: list[_Stack] = []
    index = -1
    for line in log.lines:
        if isinstance(line, r.Steps) and line.rows:
            index = line.rows[0][0]
        elif isinstance(line, r.Stacks):
            everything += line.rows
            if index >= warmup_index:
                kept += line.rows
    return kept if sum(row[5] for row in kept) >= 20 else everything


def section_shares(stacks: Sequence[_Stack]) -> tuple[dict[str, dict[str, float]], int]:
    """Shares of the classes in each section of the loop, and how many samples they rest on."""
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    count = 0
    for section, kind, _, _, ns, samples in stacks:
        if section is not None:
            sums[section][kind] += ns
            count += samples
    shares = {}
    for section, kinds in sums.items():
        total = sum(kinds.values())
        if total > 0:
            shares[section] = {kind: ns / total for kind, ns in kinds.items()}
    return shares, count


def spots(stacks: Sequence[_Stack], regions: dict[str, float]) -> tuple[Spot, ...]:
    """Places with their ms a step: sampled shares of each exactly timed region or section."""
    totals: dict[str, float] = defaultdict(float)
    for section, kind, _, _, ns, _ in stacks:
        totals[section or kind] += ns
    merged: dict[tuple[str, str], list[tuple[float, str, int]]] = defaultdict(list)
    for section, kind, where, leaf, ns, samples in stacks:
        scope = section or kind
        if totals[scope] > 0:
            merged[kind, where].append((regions.get(scope, 0.0) * ns / totals[scope], leaf, samples))
    found = [
        Spot(kind, where, max(parts)[1], sum(ms for ms, _, _ in parts), sum(n for _, _, n in parts))
        for (kind, where), parts in merged.items()
    ]
    return tuple(sorted(found, key=lambda spot: -spot.ms))


def worker_spots(logs: Sequence[ProcessLog]) -> tuple[Spot, ...]:
    """Places inside the loader's workers; `ms` is the time seen there over the whole run."""
    merged: dict[str, list[tuple[float, str, int]]] = defaultdict(list)
    for log in logs:
        for line in log.of(r.Stacks):
            for _, _, where, leaf, ns, samples in line.rows:
                merged[where].append((ns * _MS, leaf, samples))
    found = [
        Spot("data", where, max(parts)[1], sum(ms for ms, _, _ in parts), sum(n for _, _, n in parts))
        for where, parts in merged.items()
    ]
    return tuple(sorted(found, key=lambda spot: -spot.ms))


def operator_facts(log: ProcessLog) -> OperatorFacts | None:
    """What a step of a run without a GPU is made of, or None where it was not counted."""
    lines = [line for line in log.of(r.Operators) if line.steps > 0 and line.rows]
    if not lines:
        return None
    line = lines[-1]
    own: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for name, count, ns in line.rows:
        own[name] += ns * _MS / line.steps
        counts[name] += count / line.steps
    return OperatorFacts(sum(counts.values()), line.wall * _MS / line.steps, dict(own), dict(counts))


def syncs(log: ProcessLog, steps: int) -> tuple[Sync, ...]:
    """Calls that waited for the device, per step of the whole run."""
    merged: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in log.of(r.Syncs):
        for call, where, ns, count in line.rows:
            merged[call, where][0] += ns
            merged[call, where][1] += count
    found = [Sync(call, where, ns * _MS / steps, count / steps) for (call, where), (ns, count) in merged.items()]
    return tuple(sorted(found, key=lambda sync: -sync.ms))


def copies(log: ProcessLog, steps: int) -> tuple[Copy, ...]:
    """Copies between host and device, per step of the whole run."""
    merged: dict[tuple[str, bool | None, bool, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in log.of(r.Copies):
        for direction, pinned, blocking, where, ns, count, size in line.rows:
            entry = merged[direction, pinned, blocking, where]
            entry[0] += ns
            entry[1] += count
            entry[2] += size
    found = [
        Copy(*key, ms=ns * _MS / steps, calls=count / steps, bytes=size / steps)
        for key, (ns, count, size) in merged.items()
    ]
    return tuple(sorted(found, key=lambda copy: -copy.ms))

"""The loader: what each batch cost to make, on a CPU and waiting, and how many batches lay ready."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from statistics import fmean, median_low

from underfed.pictures import specs
from underfed.pictures.material import Material
from underfed.pictures.shapes import Chart, Section, Table, number
from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording

_EMPTY = Section(id="loader", title="The loader")

_MS = 1e-6
_MOST_DRAWN = 500
_LABELS = {"device": "computing", "data": "waiting: storage, network, a lock or a CPU"}
_USED = ("device", "data")


@dataclass(frozen=True)
class Fetch:
    """One batch: when it was ready (ns, monotonic), by which worker (None: the training process), ms, bytes read."""

    end: int
    worker: int | None
    wall: float
    cpu: float
    collate: float | None
    read: int | None


def fetches(recording: Recording, log: ProcessLog) -> list[Fetch]:
    """Return the fetches of a training process and its workers, in the order in which they ended."""
    mine = [one for one in recording.workers if one.process.ppid == log.process.pid]
    if not mine and len(recording.processes) == 1:
        mine = recording.workers
    found = []
    for one in [log, *mine]:
        for line in one.of(r.Fetches):
            for row in line.rows:
                if len(row) < 7 or row[0] is None or row[1] is None or row[1] < 0:
                    continue
                wall, cpu = row[1] * _MS, min(row[2] or 0, row[1]) * _MS
                collate = row[6] * _MS if row[6] is not None else None
                found.append(Fetch(row[0], line.worker, wall, cpu, collate, row[4]))
    return sorted(found, key=lambda fetch: fetch.end)


def section(material: Material) -> Section:
    """Return the section about the loader."""
    if material.recording is None or material.log is None:
        return replace(_EMPTY, missing="Only underfed run times each batch of the loader.")
    found = fetches(material.recording, material.log)
    if not found:
        return replace(_EMPTY, missing="No batch of a torch DataLoader was seen.")
    notes = [_setup(material.log)]
    charts = [_chart(found)]
    depth = _depth(found, material.log)
    if isinstance(depth, str):
        notes.append(depth)
    else:
        charts.append(depth)
    return replace(_EMPTY, charts=charts, notes=notes)


def _setup(log: ProcessLog) -> str:
    from underfed.diagnose.gather import training_loader

    line = training_loader(log)
    if line is None:
        return "How the loader is set up was not recorded."
    words = [f"num_workers={line.workers}", f"pin_memory={line.pin}", f"persistent_workers={line.persistent}"]
    words += [f"prefetch_factor={line.prefetch}"] if line.prefetch is not None else []
    words += [f"batch_size={line.batch}"] if line.batch is not None else []
    return f"Set up as: {', '.join(words)}."


def _chart(found: list[Fetch]) -> Chart:
    walls, cpus = [one.wall for one in found], [one.cpu for one in found]
    share = sum(cpus) / max(sum(walls), 1e-9)
    says = f"{len(found)} batches, {number(fmean(walls))} ms each on average, {100 * share:.0f} % of it computing"
    workers = {one.worker for one in found}
    says += ", in the training process itself." if workers == {None} else f", by {len(workers - {None})} workers."
    size = -(-len(found) // _MOST_DRAWN)
    rows = []
    for at in range(0, len(found), size):
        bucket = found[at : at + size]
        last = at + len(bucket)
        rows.append(
            {
                "step": at,
                "to": last,
                "shown": f"{at}" if size == 1 else f"{at} to {last - 1}",
                "ms": round(fmean(one.wall for one in bucket), 4),
                "longest": round(max(one.wall for one in bucket), 4),
                _LABELS["device"]: round(fmean(one.cpu for one in bucket), 4),
                _LABELS["data"]: round(fmean(one.wall - one.cpu for one in bucket), 4),
            }
        )
    return Chart(
        id="fetch-chart",
        title="Time to make each batch",
        says=says,
        spec=specs.stacked(rows, _USED, _LABELS, what="batch, in the order in which they were ready"),
        legend=tuple((name, _LABELS[name]) for name in _USED),
        table=_table(found),
        zoom=True,
    )


def _table(found: list[Fetch]) -> Table:
    by: dict[int | None, list[Fetch]] = defaultdict(list)
    for one in found:
        by[one.worker].append(one)
    rows: list[tuple[str | None, ...]] = []
    for worker, many in sorted(by.items(), key=lambda pair: -1 if pair[0] is None else pair[0]):
        reads = [one.read for one in many if one.read is not None]
        collates = [one.collate for one in many if one.collate is not None]
        rows.append(
            (
                "training process" if worker is None else f"worker {worker}",
                str(len(many)),
                number(fmean(one.wall for one in many)),
                number(fmean(one.cpu for one in many)),
                number(fmean(collates)) if collates else None,
                number(max(one.wall for one in many)),
                number(fmean(reads) / 1e6) if reads else None,
            )
        )
    return Table(
        columns=("made by", "batches", "mean ms", "on a CPU, ms", "collating, ms", "longest ms", "MB read"),
        rows=rows,
        caption="Batches by who made them",
    )


def _depth(found: list[Fetch], log: ProcessLog) -> Chart | str:
    """How many batches lay ready when a step ended; or why that is not shown."""
    if any(one.worker is None for one in found):
        return "There is no queue: batches are made in the training process."
    from underfed.diagnose.gather import training_loader

    line = training_loader(log)
    most = (line.prefetch or 2) * max(1, line.workers) if line is not None else None
    points = depths(found, log.step_rows(), most) if most is not None else []
    if not points:
        return "How many batches lay ready is not shown: the counts of batches made and taken do not match."
    ready = [depth for _, depth in points]
    size = -(-len(points) // _MOST_DRAWN)
    return Chart(
        id="queue-chart",
        title="Batches that lay ready when a step ended",
        says=f"At most {most} can lie ready. The queue was empty at the end of {ready.count(0)} of {len(ready)} steps.",
        spec=specs.line(
            [{"step": step, "ready": depth} for step, depth in points[::size]],
            x="step",
            x_title="step",
            y="ready",
            y_title="batches ready",
            colour="data",
        ),
        table=Table(
            columns=("batches ready", "steps"),
            rows=[(str(depth), str(ready.count(depth))) for depth in sorted(set(ready))],
            caption="How often so many batches lay ready",
        ),
        zoom=True,
    )


def depths(found: list[Fetch], rows: list[list[int]], most: int) -> list[tuple[int, int]]:
    """Return step and batches ready at its end: those made in this pass over the data, less those taken in it.

    Each pass counts anew, from the end of the step before it. None are returned where a count is impossible: where
    batches of a pass that was left early lie among those of the next, or where some were made or taken unseen.
    """
    at = {name: column for column, name in enumerate(r.STEP_COLUMNS)}
    inner = [row[at["fetches"]] for row in rows[1:] if not row[at["flags"]] & r.NEW_EPOCH]
    usual = median_low(inner) if inner else 1
    points: list[tuple[int, int]] = []
    made = taken = base = 0
    for place, row in enumerate(rows):
        took = row[at["fetches"]]
        if place == 0:
            # A loop takes its batch before the thread that it runs on is known.
            took = max(took, 1)
        elif row[at["flags"]] & r.NEW_EPOCH:
            # One request more than usual: the one to which the last pass answered that there is nothing left.
            base, taken, took = made, 0, min(took, max(1, usual))
        taken += took
        while made < len(found) and found[made].end <= row[at["end"]]:
            made += 1
        depth = made - base - taken
        if not 0 <= depth <= most:
            return []
        points.append((row[at["index"]], depth))
    return points

"""What one run of a trial left: steady steps as blocks, start-up cost, losses, what acted, what disturbed it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from underfed.diagnose import gather
from underfed.diagnose.machine import cpu_facts
from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording, read
from underfed.trial import stats

_COLUMN = {name: at for at, name in enumerate(r.STEP_COLUMNS)}
_ANY = msgspec.json.Decoder()

#: A run in which the kernel held back, or kept waiting, for more than these shares of the time is marked.
THROTTLED = 0.02
WAITED = 0.10


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run. `walls` and `blocks` in ms, the steady part only."""

    walls: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)
    epochs: int = 0
    warmup: int = 0
    steady: bool = False
    before_steady_s: float | None = None
    losses: list[float] = field(default_factory=list)
    batches: list[str | None] = field(default_factory=list)
    gradients: list[float | None] = field(default_factory=list)
    """Norms of the first steps' gradients, as the optimizer got them."""
    weights: tuple[str | None, float] | None = None
    acted: list[tuple[str, str]] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    ended_early: bool = False
    device: str | None = None
    marks: list[str] = field(default_factory=list)

    @property
    def step_ms(self) -> float | None:
        """The run's value: the median of its blocks."""
        return median(self.blocks) if self.blocks else None

    @property
    def mean_ms(self) -> float | None:
        """Mean of all steady steps."""
        return fmean(self.walls) if self.walls else None


def main_log(recording: Recording) -> ProcessLog | None:
    """Return the process that trains: the one with most steps, of several alike the lowest rank."""
    logs = [log for log in recording.processes if log.step_rows()]
    return min(logs, key=lambda log: (-len(log.step_rows()), log.process.rank or 0), default=None)


def measure(folder: Path) -> Measured:
    """Read what a run left in its folder; empty where it made no steps."""
    recording = read(folder)
    log = main_log(recording)
    notes = list(_notes(folder, log.process.pid if log else None))
    told = _told(notes)
    loader = gather.training_loader(log) if log is not None else None
    burst = max(1, loader.workers if loader is not None else 1)
    table = gather.step_table(log, burst) if log is not None else None
    if log is None or table is None:
        return Measured(**told)
    walls = table.walls()
    borders = [at for at, row in enumerate(table.rows) if row[_COLUMN["flags"]] & r.NEW_EPOCH]
    facts = [line for line in log.of(r.Facts) if line.device]
    return Measured(
        walls=walls,
        blocks=stats.blocks(walls, burst=burst, borders=borders),
        epochs=len(borders),
        warmup=table.warmup,
        steady=table.steady,
        before_steady_s=_before(log, table),
        device=facts[-1].device if facts else None,
        marks=_marks(recording, log, table),
        **told,
    )


def _before(log: ProcessLog, table: gather.StepTable) -> float | None:
    """Seconds from torch's import to the steady part, less the time that its steps take once they are steady."""
    if not log.process.clock or table.begin < log.process.clock:
        return None
    steady = median(table.walls()) * 1e-3
    return max(0.0, (table.begin - log.process.clock) * 1e-9 - table.warmup * steady)


def _marks(recording: Recording, log: ProcessLog, table: gather.StepTable) -> list[str]:
    found = []
    cpus = cpu_facts(recording.host)
    if cpus is not None and (cpus.throttled_share or 0.0) > THROTTLED:
        found.append(f"throttled by the CPU quota for {100 * (cpus.throttled_share or 0):.0f} % of the time")
    if (waited := _waited(recording.host, log.process.pid)) is not None and waited > WAITED:
        found.append(f"the training thread waited for a CPU for {100 * waited:.0f} % of the time it could have run")
    if not table.steady:
        found.append("the steps never became steady")
    facts = log.of(r.Facts)
    steady = [line for line in facts if line.t >= table.begin]
    if len(steady) > 1:
        graphs = [line.dynamo.get("unique_graphs", 0) for line in steady if line.dynamo]
        if graphs and graphs[-1] > graphs[0]:
            found.append(f"{graphs[-1] - graphs[0]} graphs were compiled in the steady part")
        retries = [line.memory.get("retries", 0) for line in steady if line.memory]
        if retries and retries[-1] > retries[0]:
            found.append("the allocator ran out of cached memory and retried")
    return found


def _waited(host: list[dict[str, Any]], pid: int) -> float | None:
    """Share of its runnable time in which the main thread of a process had no CPU; None where not known."""
    seen = [
        (process.get("run_ns"), process.get("wait_ns"))
        for line in host
        for process in line.get("tree") or []
        if isinstance(process, dict) and process.get("pid") == pid
    ]
    known = [(run, wait) for run, wait in seen if isinstance(run, int) and isinstance(wait, int)]
    if len(known) < 2:
        return None
    ran, waited = known[-1][0] - known[0][0], known[-1][1] - known[0][1]
    return waited / (ran + waited) if ran + waited > 0 else None


def _notes(folder: Path, pid: int | None) -> Iterator[dict[str, Any]]:
    """Yield the lines that the switches left, of the training process alone where it is known."""
    for path in sorted(folder.glob("trial-*.jsonl")):
        if pid is not None and not path.name.startswith(f"trial-{pid}-"):
            continue
        with contextlib.suppress(OSError):
            for raw in path.read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    line = _ANY.decode(raw)
                    if isinstance(line, dict):
                        yield line


def _told(notes: list[dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = {"losses": [], "gradients": [], "batches": [], "acted": [], "refused": []}
    for line in notes:
        kind = line.get("k")
        if kind == "losses" and isinstance(line.get("rows"), list):
            for text in line["rows"]:
                with contextlib.suppress(ValueError, TypeError):
                    told["losses"].append(float.fromhex(text))
        elif kind == "gradients" and isinstance(line.get("rows"), list):
            for text in line["rows"]:
                with contextlib.suppress(ValueError, TypeError):
                    told["gradients"].append(None if text is None else float.fromhex(text))
        elif kind == "batch":
            told["batches"].append(line.get("sum") if isinstance(line.get("sum"), str) else None)
        elif kind == "weights":
            with contextlib.suppress(ValueError, TypeError):
                told["weights"] = (line.get("sum"), float.fromhex(str(line.get("norm"))))
        elif kind in ("acted", "refused"):
            told[kind].append((str(line.get("switch")), str(line.get("what", line.get("why")))))
        elif kind == "ended":
            told["ended_early"] = True
    return told

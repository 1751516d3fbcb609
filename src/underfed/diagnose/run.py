"""From a Recording to a Diagnosis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from underfed.diagnose import gather
from underfed.diagnose.assemble import assemble
from underfed.diagnose.budget import DeviceTime, cpu_budget, gpu_budget, host_time
from underfed.diagnose.hardware import gpu_facts, memory_facts, worker_facts
from underfed.diagnose.machine import cpu_facts, gpu_utilization, queue_wait
from underfed.diagnose.places import relative
from underfed.diagnose.skew import exposed_by_pass, skew_of_run
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Diagnosis, Subject, Verdict
from underfed.playbook.evidence import Evidence, FetchFacts, RankFacts, SkewFacts
from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording

#: Reads a window's trace: file, begin and end (unix ns), steps -> device time and facts. Passed in, so that this room
#: does no I/O of its own.
TraceReader = Callable[[Path, int, int, int], "TracedWindow | None"]


@dataclass(frozen=True)
class TracedWindow:
    """What a traced window says."""

    device: DeviceTime
    facts: Any


@dataclass(frozen=True)
class Seen:
    """One training process with its evidence."""

    log: ProcessLog
    evidence: Evidence
    steady: bool


def _workers_of(recording: Recording, log: ProcessLog) -> list[ProcessLog]:
    # A spawned worker writes its first line before it learns that it is one; its fetches say so.
    late = [one for one in recording.processes if any(line.worker is not None for line in one.of(r.Fetches))]
    return [worker for worker in [*recording.workers, *late] if worker.process.ppid == log.process.pid] or (
        recording.workers if len(recording.processes) == 1 else []
    )


def look(recording: Recording, log: ProcessLog, read_trace: TraceReader | None) -> Seen | None:
    """Build the evidence of one process, or None where it made no steps."""
    loader = gather.training_loader(log)
    table = gather.step_table(log, loader.workers if loader is not None else 1)
    if table is None:
        return None
    regions = table.regions()
    stacks = gather.stacks_since(log, table.warmup)
    sections, samples = gather.section_shares(stacks)
    host = host_time(regions, sections)
    facts = log.of(r.Facts)
    last = _during(facts)
    on_gpu = bool(last and last.device)
    window, limits = _window(recording, log, read_trace) if on_gpu else (None, [])
    exchange = gather.exchange_facts(log, table.warmup)
    if on_gpu:
        step = gpu_budget(host, window.device if window else None)
    elif exchange is not None:
        step = cpu_budget(host, min(exchange.exposed, regions.get("backward", 0.0)), exchange.total)
        if exchange.readings < T.enough_exchanges:
            limits.append(f"torch timed only {exchange.readings} gradient exchanges; a longer run says more of them")
    else:
        step = cpu_budget(host)
    if 0 < samples < T.enough_samples:
        limits.append(f"only {samples} samples say what the time outside the timed calls was; a longer run says more")
    elif samples == 0:
        limits.append("the run was too short for stack samples: time outside the timed calls is not split")
    if log.of(r.Fault):
        limits.append(f"a part of the agent failed ({log.of(r.Fault)[0].where}); what it would have seen is missing")
    if table.kind == r.BY_LOADER:
        limits.append("no optimizer was seen: a step is one batch of the loader")
    elif table.kind == r.BY_BACKWARD:
        limits.append("no optimizer of torch was seen: a step is one backward pass")
    workers = _workers_of(recording, log)
    pids = {worker.process.pid for worker in workers}
    all_steps = max(1, len(log.step_rows()))
    walls = sorted(table.walls())
    recompiles = _recompiles(facts, table.warmup)
    evidence = Evidence(
        kind="run",
        on_gpu=on_gpu,
        device_name=last.device if last else None,
        steps=len(table.rows),
        warmup=table.warmup,
        step=step,
        regions=regions,
        spots=gather.spots(stacks, regions),
        worker_spots=gather.worker_spots(workers),
        loader=gather.loader_facts(loader),
        fetches=_fetches(recording, log, workers, table),
        epochs=gather.epoch_facts(table),
        cpus=cpu_facts(recording.host),
        syncs=gather.syncs(log, all_steps),
        copies=gather.copies(log, all_steps),
        torch=_settings(facts, last, table.warmup) | {"cuda_build": _build(log), "versions": _versions(log)},
        recompiles=recompiles,
        counts={name: table.mean(name) for name in r.STEP_COUNTS},
        usual_ms=walls[len(walls) // 2],
        step_spread=walls[int(0.95 * (len(walls) - 1))] / max(walls[len(walls) // 2], 1e-9),
        trace=window.facts if window else None,
        exchange=exchange,
        operators=None if on_gpu else gather.operator_facts(log),
        cpu_wait=queue_wait(recording.host, {log.process.pid}),
        gpu_util=gpu_utilization(recording.host),
        memory=memory_facts(recording.host, pids),
        gpu=gpu_facts(recording.host),
        workers=worker_facts(recording.host, pids, log.process.pid),
        threads=gather.thread_facts(log, table.warmup),
        skipped=gather.skipped_share(table) if table.kind == r.BY_OPTIMIZER else None,
        limits=tuple(limits),
    )
    return Seen(log, evidence, table.steady)


def _fetches(
    recording: Recording, log: ProcessLog, workers: list[ProcessLog], table: gather.StepTable
) -> FetchFacts | None:
    """What fetches cost, with the time for which they waited for a CPU: that is neither computing nor storage."""
    found = gather.fetch_facts([log, *workers], table.begin, table.end)
    ratio = queue_wait(recording.host, {worker.process.pid for worker in workers})
    if found is None or ratio is None:
        return found
    return replace(found, queued=min(ratio * found.cpu, max(0.0, found.wall - found.cpu)))


def _window(
    recording: Recording, log: ProcessLog, read_trace: TraceReader | None
) -> tuple[TracedWindow | None, list[str]]:
    for line in log.of(r.Trace):
        if line.state != "saved" or not line.file or read_trace is None:
            return None, [f"no device trace: {line.reason or 'it could not be read'}"]
        if "/" in line.file or not line.file.startswith("trace-"):
            return None, ["no device trace: its name in the recording is not one of ours"]
        found = read_trace(recording.folder / line.file, line.begin_unix, line.end_unix, line.steps)
        return found, [] if found else ["the device trace could not be read"]
    return None, ["the device was not traced: the run was too short, or --window off was given"]


def _during(facts: list[r.Facts]) -> r.Facts | None:
    """The last facts from within the loop: those written at exit may no longer hold what held in it."""
    if not facts:
        return None
    inside = [line for line in facts if line.step < facts[-1].step]
    return inside[-1] if inside else facts[-1]


def _settings(facts: list[r.Facts], last: r.Facts | None, warmup: int) -> dict[str, Any]:
    """What was set last, and how fast the allocator's counters grew behind the warm-up, a step."""
    if last is None:
        return {}
    found = {name: getattr(last, name) for name in last.__struct_fields__}
    steady = [line for line in facts if line.memory is not None and line.step >= warmup]
    if len(steady) > 1 and (steps := steady[-1].step - steady[0].step) > 0:
        begin, end = steady[0].memory or {}, steady[-1].memory or {}
        found["memory_rate"] = {name: (end[name] - begin[name]) / steps for name in end if name in begin}
        found["memory_rate"] |= _halves(steady)
    return found


def _build(log: ProcessLog) -> str | None:
    """CUDA version that torch was built for; empty for a build without CUDA, None where torch is not known."""
    return (log.process.cuda or "") if log.process.torch else None


def _versions(log: ProcessLog) -> dict[str, str]:
    """Versions of Python, torch and its CUDA, as far as they are known."""
    found = {"python": log.process.python, "torch": log.process.torch, "cuda": log.process.cuda}
    return {name: version for name, version in found.items() if version}


def _halves(steady: list[r.Facts]) -> dict[str, float]:
    """Growth of reserved memory a step in either half of the steady part: what goes on growing grows in both."""
    middle = steady[len(steady) // 2]
    if len(steady) < 4 or not steady[0].step < middle.step < steady[-1].step:
        return {}

    def rate(one: r.Facts, two: r.Facts) -> float:
        return ((two.memory or {}).get("peak", 0) - (one.memory or {}).get("peak", 0)) / (two.step - one.step)

    return {"peak_first": rate(steady[0], middle), "peak_last": rate(middle, steady[-1])}


def _recompiles(facts: list[r.Facts], warmup: int) -> float | None:
    """Graphs compiled after the warm-up, the counter at its end interpolated; None where nothing was compiled."""
    counted = [(line.step, line.dynamo.get("unique_graphs", 0)) for line in facts if line.dynamo]
    if not counted:
        return None
    before = [point for point in counted if point[0] <= warmup]
    after = [point for point in counted if point[0] > warmup]
    if not after:
        return 0.0
    first = after[0]
    last = before[-1] if before else (0, 0)
    share = (warmup - last[0]) / (first[0] - last[0])
    return float(counted[-1][1] - (last[1] + share * (first[1] - last[1])))


def diagnose(recording: Recording, read_trace: TraceReader | None = None) -> Diagnosis:
    """Say what a recording means; always returns a Diagnosis, `unknown` with the reason where nothing can be said."""
    seen = [found for log in recording.processes if (found := look(recording, log, read_trace)) is not None]
    if not seen:
        return _nothing(recording)
    seen.sort(key=lambda one: (-one.evidence.steps * one.evidence.step_ms, one.log.process.rank or 0))
    best = _by_rank(seen)
    ranks = _ranks(best)
    chosen = seen[0]
    if len(ranks) > 1:
        skew = _skew(list(best.values()), ranks)
        late = skew.late[0] if skew is not None and skew.late else max(ranks, key=lambda rank: rank.own_ms).rank
        chosen = best[late]
        chosen = replace(chosen, evidence=replace(chosen.evidence, ranks=tuple(ranks), skew=skew))
    subject = Subject(
        kind="run",
        paths=[str(recording.folder)],
        ranks=max(1, len(ranks)),
        steps=chosen.evidence.steps,
        warmup_steps=chosen.evidence.warmup,
        device=chosen.evidence.device_name or "CPU",
    )
    diagnosis = assemble(chosen.evidence, subject, steady=chosen.steady)
    return relative(diagnosis, chosen.log.process.cwd)


def _by_rank(seen: list[Seen]) -> dict[int, Seen]:
    """The process that speaks for each rank: that of the last restart."""
    best: dict[int, Seen] = {}
    for one in seen:
        rank = one.log.process.rank
        if rank is not None and (
            rank not in best or (one.log.process.restart or 0) >= (best[rank].log.process.restart or 0)
        ):
            best[rank] = one
    return dict(sorted(best.items()))


def _ranks(best: dict[int, Seen]) -> list[RankFacts]:
    """One entry a rank. In data-parallel training all ranks take equally long, since each waits for the slowest inside
    its backward pass and its collectives; what a rank does outside them is its own, and the late rank has most of it.
    """
    found = []
    for rank, one in best.items():
        regions, step = one.evidence.regions, one.evidence.step_ms
        waiting = regions.get("backward", 0.0) + regions.get("comms", 0.0)
        waits = one.evidence.wait_ms
        found.append(RankFacts(rank, step, step - waiting, waits.get("data", 0.0), waits.get("stall", 0.0)))
    return found


def _skew(best: list[Seen], ranks: list[RankFacts]) -> SkewFacts | None:
    """Hold the ranks of a run without a GPU against each other by their timed exchanges; None where that cannot be."""
    if any(one.evidence.on_gpu or one.evidence.exchange is None for one in best):
        return None  # on a GPU the exchange is timed on the device's own stream, which runs behind the host
    timed = {one.log.process.rank or 0: exposed_by_pass(one.log, one.evidence.warmup) for one in best}
    times = max(one.evidence.exchange.times for one in best if one.evidence.exchange is not None)
    return skew_of_run(timed, ranks, max(one.log.process.world or 0 for one in best), times)


def _nothing(recording: Recording) -> Diagnosis:
    if not recording.processes:
        text = "No Python process of the command imported torch where underfed could see it."
        settle = "run Python without -I, -E and -S, and start it from the command itself"
    else:
        text = "torch was imported, but no optimizer step, backward pass or DataLoader batch was seen."
        settle = "run it for longer, or give the command that trains"
    return Diagnosis(
        subject=Subject(kind="run", paths=[str(recording.folder)], ranks=None, steps=0),
        verdict=Verdict(bound="unknown", confidence="low", text=text, settle=settle),
        limits=["nothing was measured"],
    )

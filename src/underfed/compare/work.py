"""Whether two runs did the same work, and under which circumstances: facts by name, as words, only where recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from underfed.compare.records import Fact, Same
from underfed.diagnosis import Diagnosis
from underfed.recording import records as r
from underfed.recording.read import ProcessLog, Recording
from underfed.report.text import clean

if TYPE_CHECKING:
    from underfed.timeline.facts import TraceFacts

#: What makes a step another amount of work, or the machine another one: step times cannot be held against each other.
WORK = (
    "device",
    "ranks",
    "a step is",
    "batch",
    "batches a step",
    "dataset",
    "batches an epoch",
    "optimizer",
    "tensors trained",
)
#: Never recorded, so never claimed to be the same.
UNSEEN = ("shapes of a batch", "autocast", "values of the command's options")
#: Circumstances: they explain a difference, and may be what was changed on purpose.
SETTINGS = (
    "command",
    "matmul precision",
    "TF32 in cuDNN",
    "type of the weights",
    "cudnn.benchmark",
    "optimizer's form",
    "torch",
    "CUDA",
    "Python",
    "torch's threads",
    "usable CPUs",
    "workers",
    "prefetch_factor",
    "pin_memory",
    "persistent_workers",
    "anomaly detection",
    "checkpointing",
)
_KINDS = {r.BY_OPTIMIZER: "an optimizer step", r.BY_BACKWARD: "a backward pass", r.BY_LOADER: "a batch of the loader"}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of one side, by the names above."""

    known: dict[str, str] = field(default_factory=dict)


def of_recording(recording: Recording) -> Facts:
    """Gather what a recording knows of its work."""
    from underfed.diagnose import gather
    from underfed.diagnose.machine import cpu_facts
    from underfed.trial.measured import main_log

    found: dict[str, object] = {"command": _command(recording)}
    log = main_log(recording)
    cpus = cpu_facts(recording.host)
    if cpus is not None and cpus.usable is not None:
        found["usable CPUs"] = f"{cpus.usable:g}"
    if log is None:
        return _words(found)
    loader = gather.training_loader(log)
    table = gather.step_table(log, loader.workers if loader is not None else 1)
    if table is not None:
        found["a step is"] = _KINDS.get(table.kind)
        batches = table.mean("fetches")
        if loader is not None:
            found["batches a step"] = f"{batches:.1f}".removesuffix(".0")
    found |= {"torch": log.process.torch, "CUDA": log.process.cuda, "Python": log.process.python}
    ranks = {one.process.rank for one in recording.processes if one.process.rank is not None and one.step_rows()}
    found["ranks"] = log.process.world or max(1, len(ranks))
    if loader is not None:
        found |= _loader(loader)
    return _words(found | _settings(log))


def _loader(loader: r.Loader) -> dict[str, object]:
    return {
        "batch": loader.batch,
        "dataset": loader.dataset,
        "batches an epoch": loader.length,
        "workers": loader.workers,
        "prefetch_factor": loader.prefetch if loader.workers else "none",
        "pin_memory": loader.pin,
        "persistent_workers": loader.persistent,
    }


def _settings(log: ProcessLog) -> dict[str, object]:
    facts = log.of(r.Facts)
    if not facts:
        return {}
    # Those at the very end may no longer hold what held in the loop.
    last = next((line for line in reversed(facts) if line.step < facts[-1].step), facts[-1])
    device = next((line.device for line in facts if line.device), None)
    found: dict[str, object] = {
        "device": device or "CPU",
        "matmul precision": last.matmul_precision,
        "TF32 in cuDNN": last.cudnn_tf32 if device else None,
        "cudnn.benchmark": last.cudnn_benchmark if device else None,
        "torch's threads": last.threads,
        "anomaly detection": last.anomaly,
        "checkpointing": last.checkpointing,
    }
    known = [one for one in last.optimizers or [] if isinstance(one, dict)]
    if known:
        forms = [name for name in ("fused", "foreach") if any(one.get(name) for one in known)]
        found |= {
            "optimizer": ", ".join(sorted({str(one.get("name")) for one in known})),
            "optimizer's form": " and ".join(forms) or "default",
            "tensors trained": sum(one["tensors"] for one in known if isinstance(one.get("tensors"), int)),
            "type of the weights": ", ".join(sorted({str(one.get("dtype")) for one in known if one.get("dtype")})),
        }
    return found


def _command(recording: Recording) -> str | None:
    words = recording.header.get("command")
    return " ".join(str(word) for word in words) if isinstance(words, list) and words else None


def of_traces(traces: Sequence[TraceFacts], diagnosis: Diagnosis) -> Facts:
    """Gather what traces know: a batch, versions and settings are not in them."""
    found: dict[str, object] = {"device": diagnosis.subject.device}
    sizes = {one.world_size for one in traces if one.world_size}
    found["ranks"] = max(sizes) if sizes else diagnosis.subject.ranks
    return _words(found)


def _words(found: dict[str, object]) -> Facts:
    shown = {True: "on", False: "off"}
    return Facts(
        known={
            name: shown[value] if isinstance(value, bool) else clean(str(value))
            for name, value in found.items()
            if value is not None and value != ""
        }
    )


def facts(a: Facts, b: Facts) -> list[Fact]:
    """Set the circumstances of both sides beside each other; settings that neither knows are left out."""
    found = []
    for name in (*WORK, *UNSEEN, *SETTINGS):
        one, two = a.known.get(name), b.known.get(name)
        work = name in WORK or name in UNSEEN
        if one is None and two is None and not work:
            continue
        same: Same = "not-known" if one is None or two is None else "same" if one == two else "different"
        found.append(Fact(name=name, a=one, b=two, same=same, work=work))
    return found


def verdict(found: Sequence[Fact]) -> Same:
    """Say whether the work was the same: `different` where a part of it is, `not-known` where one is missing.

    What is never recorded does not count; it is named beside the verdict.
    """
    known = [fact.same for fact in found if fact.work and fact.name not in UNSEEN]
    if "different" in known:
        return "different"
    return "not-known" if "not-known" in known else "same"

"""Other Python threads of the process hold the interpreter lock, and the training thread waits for it.

What it looks like
    A training thread that is neither computing nor in any known wait, beside a thread of the same process that
    computes in Python: a loader made of threads, a metric server, a tracker, a progress printer.

Why it costs
    Only one thread of a process runs Python at a time. Each operator that the training thread launches has to win the
    lock back from a thread that gives it up every 5 ms, so the device runs dry between launches.

Fix
    plain PyTorch: `DataLoader(..., num_workers=4)` for threads that load; other work in `multiprocessing.Process`
    HF Trainer:    `TrainingArguments(dataloader_num_workers=4)`; work of callbacks in another process
    Lightning:     `DataLoader(..., num_workers=4)` in train_dataloader(); work of callbacks in another process
    Threads that wait, or that compute inside libraries which give the lock up, do no harm.

How it is found
    CPU time of the process's Python threads by the kernel's own count, and time of the training thread that is no CPU
    time, no queueing for a CPU and no known wait. The smaller of the two is what the lock can have cost.

When it stays silent
    Without other Python threads, where they use little CPU, and where the training thread's waits are explained.

Not to be confused with
    T3 (compute threads that share the CPUs), X3 (input made on the training thread itself), T15 (launching is slow by
    itself).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Gain, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import floor_ms, gain_between, slack
from underfed.playbook.rule import Rule

#: CPUs that the other threads use from which they can matter.
_BUSY = 0.2
#: Timed regions in which the training thread may sleep for another reason.
_SLEEPS = ("data", "start", "eval", "h2d", "d2h", "sync", "comms", "cache")
#: Kinds of work that may sleep in a file, a network or a clock.
_OUTSIDE = ("checkpoint", "logging", "progress", "plotting", "stall", "data", "eval", "compile")


def check(evidence: Evidence) -> Finding | None:
    """Find a training thread that waits while other Python threads compute."""
    threads, step = evidence.threads, evidence.step_ms
    if threads is None or step <= 0 or threads.others < _BUSY:
        return None
    lost = min(_unexplained(evidence, threads.training), threads.others * step)
    if lost < T.worth * step:
        return None
    many = f"{threads.count} Python threads use" if threads.count > 1 else "Another Python thread uses"
    return RULE.finding(
        summary=f"{many} {threads.others:.2g} CPUs, and the training thread waits for the interpreter meanwhile.",
        gain=_gain(evidence, threads.training, lost),
        where=threads.where,
        evidence=[
            Observation(
                source="agent", text="CPUs that other Python threads use", value=_shown(threads.others), unit="CPUs"
            ),
            Observation(
                source="agent", text="CPU time of the training thread", value=_shown(threads.training), unit="CPUs"
            ),
            Observation(source="agent", text="its waits without another cause", value=_shown(lost), unit="ms/step"),
        ],
        bound=evidence.bound_of_device_code(),
        fix=Fix(
            text="move what these threads compute into processes",
            code="multiprocessing.Process(target=work, daemon=True).start()",
        ),
    )


def _gain(evidence: Evidence, training: float, lost: float) -> Gain:
    """Gain without the other threads: the waits that nothing else explains go, and at best all but what the training
    thread computes, since a thread that fights for the lock also queues for CPUs.
    """
    step, computing = evidence.step_ms, min(1.0, training) * evidence.step_ms
    least = max(floor_ms(evidence), computing)
    best = max(floor_ms(evidence), slack(evidence) * computing)
    return gain_between(evidence, best, (min(least, step), max(least, step - 0.7 * lost)))


def _unexplained(evidence: Evidence, training: float) -> float:
    """Time of the training thread, in ms a step, that is no CPU time, no queueing for a CPU and no known wait."""
    step, regions = evidence.step_ms, evidence.regions
    computing = min(1.0, training) * step
    queueing = computing * (evidence.cpu_wait or 0.0)
    # On a GPU the backward pass runs on a thread of torch's own, and the training thread sleeps.
    known = sum(regions.get(name, 0.0) for name in _SLEEPS) + (regions.get("backward", 0.0) if evidence.on_gpu else 0.0)
    outside = sum(spot.ms for spot in evidence.spots if spot.kind in _OUTSIDE)
    return max(0.0, step - computing - queueing - known - outside)


def _shown(value: float) -> float:
    return round(value, 3)


RULE = Rule(
    id="X21",
    name="python-threads-take-interpreter",
    stage="dataloader",
    bound="host",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

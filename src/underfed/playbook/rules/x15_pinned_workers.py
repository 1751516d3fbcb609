"""Loader workers may run on fewer CPUs than the loop itself, so they take turns on them.

What it looks like
    Workers share one or two cores, all others are idle; every counter of the whole machine looks relaxed.

Why it costs
    An affinity mask is inherited. Some packages narrow the mask of the process that imports them (OpenMP with
    OMP_PROC_BIND, KMP_AFFINITY, old MKL), and the workers that it starts stay on those cores.

Fix
    Unset OMP_PROC_BIND, OMP_PLACES, KMP_AFFINITY and GOMP_CPU_AFFINITY; or give the mask back in each worker.
    plain PyTorch: `DataLoader(..., worker_init_fn=lambda _: os.sched_setaffinity(0, range(os.cpu_count())))`
    HF Trainer:    sets worker_init_fn itself: unset the variables, or call `os.sched_setaffinity` in the dataset
    Lightning:     the same argument of `DataLoader(..., worker_init_fn=give_back)` in train_dataloader()

How it is found
    The CPUs that each worker may run on, read from /proc, against their number and the CPUs of the run.

When it stays silent
    Where the workers have as many CPUs as the run, or as there are workers; and where the loop does not wait.

Not to be confused with
    X1 (more workers than CPUs), T3 (a quota).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule


def check(evidence: Evidence) -> Finding | None:
    """Find workers whose mask is too narrow for them."""
    workers, model = evidence.workers, feed(evidence)
    if workers is None or model is None or workers.affinity is None or model.wait < T.worth * evidence.step_ms:
        return None
    cpus, count, allowed = evidence.cpus, model.loader.workers, workers.affinity
    if cpus is None or cpus.visible is None or count < 2 or model.waiting:
        return None
    # A run that was started with a narrow mask is confined on purpose, and its workers with it.
    usable = min(cpus.visible, cpus.affinity or cpus.visible)
    if allowed >= min(count, usable) or allowed > 0.5 * usable:
        return None
    quota = cpus.quota or float(usable)
    free = max(model.rest, model.fetches * model.fetch.cpu / min(count, quota))
    step = evidence.step_ms
    return RULE.finding(
        summary=f"{count} workers may run on {allowed:.0f} of {usable} CPUs; let them use all.",
        gain=gain_between(evidence, 0.8 * min(free, step), (min(free, step), min(step, 1.5 * free))),
        where=model.loader.made_at,
        evidence=[
            Observation(source="host", text="CPUs that a worker may run on", value=allowed, unit="CPUs"),
            Observation(source="host", text="CPUs of the machine", value=float(usable), unit="CPUs"),
            Observation(
                source="agent", text="wait for input inside epochs", value=round(model.wait, 3), unit="ms/step"
            ),
        ],
        fix=Fix(
            text="unset what pins the process, or give each worker its mask back",
            code="worker_init_fn=lambda _: os.sched_setaffinity(0, range(os.cpu_count()))",
        ),
    )


RULE = Rule(
    id="X15",
    name="workers-pinned-to-few-cpus",
    stage="box",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

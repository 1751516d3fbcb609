"""Each loader worker starts threads of its own, and together they are more than the CPUs.

What it looks like
    More workers make it slower; half of the CPU time goes to the scheduler; a worker shows far above 100 %.

Why it costs
    torch sets one thread in its workers. OpenCV, OpenBLAS, MKL and Arrow do not follow that: each worker opens a pool
    as wide as the machine, and 8 workers on 32 cores run 256 threads that wait for one another.

Fix
    OPENBLAS_NUM_THREADS=1, MKL_NUM_THREADS=1 and OMP_NUM_THREADS=1 in the environment, and OpenCV's threads off.
    plain PyTorch: `DataLoader(..., worker_init_fn=lambda _: cv2.setNumThreads(0))`
    HF Trainer:    sets worker_init_fn itself: `cv2.setNumThreads(0)` at the top of the dataset's module
    Lightning:     `DataLoader(..., worker_init_fn=lambda _: cv2.setNumThreads(0))` in train_dataloader()
    Of other libraries: `threadpoolctl.threadpool_limits(1)` at the same place.

How it is found
    The CPU time of a worker's other threads during its fetches, with the number of its threads.

When it stays silent
    Where a fetch uses one thread, where the CPUs have room for all of them, and where the loop does not wait.

Not to be confused with
    T3 (the training process's own threads), X1 (too many workers of one thread each).
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed
from underfed.playbook.rule import Rule

_OVER = 1.3


def check(evidence: Evidence) -> Finding | None:
    """Find workers whose own threads crowd the CPUs."""
    model = feed(evidence)
    if model is None or not model.loader.workers or model.cpus is None or model.wait < T.worth * evidence.step_ms:
        return None
    fetch, count = model.fetch, model.loader.workers
    wide = fetch.process_cpu / max(fetch.cpu, 1e-9)
    threads = evidence.workers.threads if evidence.workers else None
    if wide < _OVER or not model.crowded or (threads is not None and threads * count <= model.cpus):
        return None
    step = evidence.step_ms
    # One thread a worker does the fetching thread's own work; what the others did is either spinning or moves to it.
    alone = model.fetches * fetch.cpu / min(count, model.cpus)
    # That thread spins while it waits for the pool, so part of its own time goes away as well.
    best = max(0.9 * model.rest, 0.3 * alone)
    likely, slow = max(model.rest, 0.6 * alone), min(max(model.rest, 1.1 * alone), 0.95 * step)
    held = f" of {threads:.0f} threads each" if threads else ""
    return RULE.finding(
        summary=(
            f"{count} workers{held} share {model.cpus:g} CPUs, and their other threads use "
            f"{fetch.process_cpu - fetch.cpu:.0f} ms of CPU a batch; give each worker one thread."
        ),
        gain=gain_between(evidence, min(best, step), (min(likely, step), slow)),
        where=model.loader.item_at,
        evidence=[
            Observation(
                source="agent", text="CPU time of one fetch, its own thread", value=round(fetch.cpu, 3), unit="ms"
            ),
            Observation(
                source="agent", text="CPU time of one fetch, all threads", value=round(fetch.process_cpu, 3), unit="ms"
            ),
            Observation(source="host", text="threads of a worker", value=threads, unit="threads"),
        ],
        fix=Fix(
            text="one thread in each worker: cv2.setNumThreads(0), OPENBLAS_NUM_THREADS=1, MKL_NUM_THREADS=1",
            code="worker_init_fn=lambda _: threadpoolctl.threadpool_limits(1)",
        ),
    )


RULE = Rule(
    id="X18",
    name="threads-inside-workers",
    stage="dataloader",
    bound="data",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

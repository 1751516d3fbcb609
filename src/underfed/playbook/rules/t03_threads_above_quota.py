"""The run starts more compute threads than it has CPUs, and the kernel throttles or thrashes them.

What it looks like
    Many threads share a few cores, none of them pegged; the container's quota is used up early in each period.

Why it costs
    torch, OpenMP and BLAS size their pools by the cores they see. Under a CPU quota the scheduler stops the whole
    process for the rest of each period once the quota is spent, launches and loader included.

Fix
    OMP_NUM_THREADS=N (and MKL_NUM_THREADS) with N no larger than the CPUs that the cgroup gives.
    plain PyTorch: `torch.set_num_threads(N)` at the start, or `$ OMP_NUM_THREADS=N python train.py`
    HF Trainer:    no switch of its own: the same call or variable before the Trainer is made
    Lightning:     no switch of its own: the same call or variable before the Trainer is made
    Measure it: too few threads cost as well, where the training thread computes on the CPU.

How it is found
    torch's thread count against the usable CPUs (quota, affinity), and the time in which the cgroup was throttled.

When it stays silent
    When threads fit the CPUs. Without throttling it is listed as a possibility only: oversubscription is often
    harmless.

Not to be confused with
    T4: adding loader workers makes this worse.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_OVER = 1.5
_THROTTLED = 0.05


def check(evidence: Evidence) -> Finding | None:
    """Find thread pools larger than the CPUs that the run may use."""
    cpus, threads = evidence.cpus, evidence.torch.get("threads")
    if cpus is None or not cpus.usable or not isinstance(threads, int) or threads < _OVER * cpus.usable:
        return None
    throttled = cpus.throttled_share or 0.0
    wanted = max(1, int(cpus.usable))
    step = evidence.step_ms
    sure = throttled > _THROTTLED
    return RULE.finding(
        summary=f"torch runs {threads} threads on {cpus.usable:g} usable CPUs; try {wanted}.",
        gain=gain_between(evidence, 0.5 * step, (step * (1 - min(throttled, 0.5)), step)) if sure else None,
        evidence=[
            Observation(source="agent", text="torch's threads", value=float(threads), unit="threads"),
            Observation(
                source="host", text=f"usable CPUs ({cpus.limited_by or 'all'})", value=cpus.usable, unit="CPUs"
            ),
            Observation(source="host", text="time throttled", value=cpus.throttled_share, unit="share"),
        ],
        fix=Fix(text=f"OMP_NUM_THREADS={wanted} in the environment", code=f"torch.set_num_threads({wanted})"),
        helps_now=sure,
        note=None if sure else "the kernel did not throttle the run: more threads than CPUs are often harmless",
    )


RULE = Rule(
    id="T3",
    name="threads-above-cpu-limit",
    stage="box",
    bound="host",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

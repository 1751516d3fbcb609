"""The utilization that nvidia-smi shows is high, although the device idles or trickles for much of each step.

What it looks like
    A monitoring page at 90 to 100 %, and training that is still slow.

Why it costs
    The figure counts the time in which any kernel runs, however small. A stream of tiny kernels reads as a full GPU,
    so a run that is starved of launches is taken for a fast one and left alone.

Fix
    Nothing to change: do not conclude from utilization. Read the device share of the step, or GPM's SM activity.
    plain PyTorch: `$ underfed run --window 10 -- python train.py` says the device's share
    HF Trainer:    the same command; nothing in the script changes
    Lightning:     the same command; `DeviceStatsMonitor()` shows the figure that misleads

How it is found
    NVML's utilization during the run held against device time by trace in the untraced step.

When it stays silent
    Without a GPU or a traced window, and where the two agree.

Not to be confused with
    T15 and T18, which name why the device idles.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule

_APART = 0.35


def check(evidence: Evidence) -> Finding | None:
    """Find utilization that says something else than the device's share of the step."""
    share, util = evidence.step.device_share, evidence.gpu_util
    if share is None or util is None or util - share < _APART:
        return None
    return RULE.finding(
        summary=f"NVML shows {100 * util:.0f} % utilization, but the GPU computes for {100 * share:.0f} % of the step.",
        evidence=[
            Observation(source="host", text="utilization by NVML", value=round(util, 3), unit="share"),
            Observation(source="trace", text="device time in the step", value=round(share, 3), unit="share"),
        ],
        fix=Fix(text="do not judge this run by utilization"),
        helps_now=False,
        note="a warning about a figure, not a fix",
    )


RULE = Rule(
    id="T2",
    name="utilization-misleads",
    stage="box",
    bound="unknown",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

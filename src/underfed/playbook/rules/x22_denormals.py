"""Weights or optimizer states of a run on the CPU hold denormal numbers, on which many CPUs compute slowly.

What it looks like
    A run on the CPU whose steps get slower as training goes on, with the same shapes and the same code.

Why it costs
    Numbers below 1.2e-38 are outside the normal range of 32 bits. Many CPUs leave their fast path for each of them.
    Averages that decay towards zero, such as Adam's, end there.

Fix
    plain PyTorch: `torch.set_flush_denormal(True)` at the start, on the thread that trains
    HF Trainer:    no switch: the same call before the Trainer is made
    Lightning:     no switch: the same call before the Trainer is made
    Numbers that small become zero; results may differ in the last bits.

How it is found
    A sample of the weights and optimizer states on the CPU, looked at every twenty seconds.

When it stays silent
    On a GPU, in distributed runs, and where next to none of the sampled numbers is denormal.

Not to be confused with
    T3, T14 and T15: other reasons for which computing on the CPU is slow, which show from the first step on.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.rule import Rule

_SHARE = 0.01


def check(evidence: Evidence) -> Finding | None:
    """Find denormal numbers where the CPU computes; what they cost depends on the CPU."""
    share = evidence.torch.get("denormals")
    if evidence.on_gpu or not isinstance(share, int | float) or share < _SHARE:
        return None
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the sampled weights and optimizer states are denormal numbers.",
        evidence=[Observation(source="agent", text="denormal numbers", value=float(share), unit="of those sampled")],
        fix=Fix(text="let them become zero", code="torch.set_flush_denormal(True)"),
        helps_now=False,
        note="what they cost depends on the CPU: a trial of the one line tells",
    )


RULE = Rule(
    id="X22",
    name="denormal-numbers",
    stage="free",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

"""Convolutions of fixed shapes run without cuDNN's search for the fastest algorithm.

What it looks like
    A convolutional network with inputs of one size, and torch.backends.cudnn.benchmark at its default.

Why it costs
    Without the search cuDNN takes an algorithm by rule of thumb. The search times the candidates once for each shape.

Fix
    plain PyTorch: `torch.backends.cudnn.benchmark = True` at the start
    HF Trainer:    no switch: the same line before the Trainer is made
    Lightning:     `Trainer(benchmark=True)`
    Only for fixed shapes: each new one is searched anew, which can cost seconds. The choice depends on timings, so
    runs no longer repeat bit for bit.

How it is found
    torch's setting, convolution kernels in the traced window, and steps of even length, as fixed shapes give them.

When it stays silent
    With the search on, with deterministic algorithms, with few convolutions, and where the GPU is not what gates.

Not to be confused with
    T11: the layout, which decides what there is to choose from.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, conv_share
from underfed.playbook.rule import Rule

_SHARE = 0.30
_EVEN = 1.25


def check(evidence: Evidence) -> Finding | None:
    """Find convolutions of fixed shapes without a search."""
    if evidence.torch.get("cudnn_benchmark") is not False or evidence.torch.get("deterministic"):
        return None
    share = conv_share(evidence)
    spread = evidence.step_spread
    if share is None or share < _SHARE or spread is None or spread > _EVEN:
        return None
    # Published cases on older cards got 1.4 times faster; with new ones the rule of thumb is often right already.
    return RULE.finding(
        summary=f"{100 * share:.0f} % of the GPU's time are convolutions whose algorithm was not searched for.",
        gain=gain_between(evidence, after(evidence, (share, 3.0)), (after(evidence, (share, 1.4)), evidence.step_ms)),
        evidence=[
            Observation(source="trace", text="convolution kernels", value=round(share, 3), unit="of kernel time"),
            Observation(source="agent", text="torch.backends.cudnn.benchmark is False"),
            Observation(source="agent", text="95th percentile over median step", value=round(spread, 3)),
        ],
        fix=Fix(text="let cuDNN search, for fixed shapes", code="torch.backends.cudnn.benchmark = True"),
    )


RULE = Rule(
    id="T10",
    name="cudnn-search-off",
    stage="free",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

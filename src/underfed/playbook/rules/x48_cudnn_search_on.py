"""cuDNN's search is on, and steps are as uneven as inputs of changing sizes make them: each new size is searched anew.

What it looks like
    A convolutional network on images of many sizes, torch.backends.cudnn.benchmark = True, and steps of which some take
    many times as long as the others, for as long as new sizes come.

Why it costs
    The search times every candidate for each new shape of each convolution, and asks for their workspaces.

Fix
    plain PyTorch: `torch.backends.cudnn.benchmark = False`, or pad and bucket to a few sizes
    HF Trainer:    no switch: the same line before the Trainer is made
    Lightning:     `Trainer(benchmark=False)`
    With few sizes it pays for itself after the first epoch: look whether late steps are uneven as well.

How it is found
    torch's setting, convolutions in the traced window, and steady steps whose 95th percentile is twice their median or
    more with no wait that explains it.

When it stays silent
    With the search off, with even steps, with few convolutions, and where input, stalls or syncs are what varies.

Not to be confused with
    T10: the search is off and shapes are fixed. T16: torch.compile meets changing shapes.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.kernels import conv_share
from underfed.playbook.rule import Rule

_SHARE = 0.10
_UNEVEN = 2.0
#: Share of the step in other waits that come and go from which those may be what makes steps uneven.
_ELSEWHERE = 0.10


def check(evidence: Evidence) -> Finding | None:
    """Find the search on beside steps of very uneven length; whether sizes change, the run does not say."""
    share, spread, step = conv_share(evidence), evidence.step_spread, evidence.step_ms
    if evidence.torch.get("cudnn_benchmark") is not True or share is None or share < _SHARE:
        return None
    if spread is None or spread < _UNEVEN or step <= 0:
        return None
    elsewhere = sum(evidence.wait_ms.get(name, 0.0) for name in ("data", "stall", "comms"))
    if elsewhere > _ELSEWHERE * step or evidence.recompiles:
        return None
    return RULE.finding(
        summary="cuDNN searches anew for each input size, and steps are uneven: where sizes change, switch it off.",
        evidence=[
            Observation(source="agent", text="95th percentile of the step to its median", value=round(spread, 2)),
            Observation(source="trace", text="convolutions", value=round(share, 3), unit="of kernel time"),
            Observation(source="agent", text="torch.backends.cudnn.benchmark is True"),
        ],
        fix=Fix(text="switch the search off, or use few sizes", code="torch.backends.cudnn.benchmark = False"),
        helps_now=False,
        note="sizes were not seen: a trial with the search off tells",
    )


RULE = Rule(
    id="X48",
    name="cudnn-search-with-changing-shapes",
    stage="free",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

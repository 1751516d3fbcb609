"""Convolutions under mixed precision run in NCHW layout, so cuDNN transposes around each of them.

What it looks like
    Kernels named nchwToNhwc and nhwcToNchw beside the convolutions, and slow batch norms.

Why it costs
    Tensor-core convolutions work on NHWC. In NCHW each one is wrapped in two transposes, and batch norm reads memory
    with large strides.

Fix
    plain PyTorch: `model = model.to(memory_format=torch.channels_last)` and the batch alike
    HF Trainer:    no switch: convert the model before it is handed over, and the batch in the collator
    Lightning:     no switch: convert the model before `trainer.fit(model)`, and the batch in
    `on_after_batch_transfer`
    Results agree to rounding. Some grouped or odd-shaped convolutions are slower this way: try it.

How it is found
    Layout kernels in the traced window.

When it stays silent
    Without layout kernels, and when the GPU is not what gates.

Not to be confused with
    The choice of the convolution algorithm (cudnn.benchmark), which is made within a layout.
"""

from __future__ import annotations

from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.kernels import after, shares
from underfed.playbook.rule import Rule

_SHARE = 0.04


def check(evidence: Evidence) -> Finding | None:
    """Find layout kernels that take a noticeable part of the device's time."""
    found = shares(evidence)
    if found is None or found.layout < _SHARE:
        return None
    layout, norm = found.layout, found.batch_norm_nchw
    # The transposes go; channels-last batch norms are known to take between a third and two thirds of the time.
    best = after(evidence, (layout, 1e9), (norm, 6.0))
    likely = (after(evidence, (layout, 1e9), (norm, 3.0)), after(evidence, (layout, 1e9), (norm, 1.5)))
    return RULE.finding(
        summary=f"{100 * layout:.0f} % of the GPU's time are layout transposes around convolutions; use channels_last.",
        gain=gain_between(evidence, best, likely),
        evidence=[
            Observation(source="trace", text="layout kernels", value=round(layout, 3), unit="of kernel time"),
            Observation(source="trace", text="batch norms in NCHW", value=round(norm, 3), unit="of kernel time"),
        ],
        fix=Fix(
            text="convert model and input to channels_last",
            code="model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
        ),
    )


RULE = Rule(
    id="T11",
    name="nchw-layout-under-amp",
    stage="free",
    bound="compute",
    numerics="reorder",
    doc=__doc__ or "",
    check=check,
)

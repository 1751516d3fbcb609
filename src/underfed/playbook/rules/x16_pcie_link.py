"""The link between the machine and the GPU is narrower or slower than the card's own.

What it looks like
    Copies take two or four times longer than on another machine with the same card.

Why it costs
    A card in a slot with 4 or 8 lanes, behind a riser or on an old board, moves batches at a part of its speed.
    Rented machines have such slots, and their price does not say so.

Fix
    Another machine or slot. Until then send fewer bytes: uint8 images that are converted on the card, tokens as
    int32, and copies that overlap computing (T6).
    plain PyTorch: `x = x.to(device, non_blocking=True).float().div_(255)`
    HF Trainer:    no switch: let the collator return uint8, and convert in the model's `forward`
    Lightning:     no switch: let the loader return uint8, and convert in `on_after_batch_transfer`

How it is found
    NVML's generation and width of the link while the GPU was busy, against what the card can do.

When it stays silent
    With a full link, and where copies are a small part of the step.

Not to be confused with
    T6: copies that block or come from pageable memory. An idle card narrows its link by itself.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_FEW = 3


def check(evidence: Evidence) -> Finding | None:
    """Find a narrow link beside copies that matter."""
    gpu, step, copy = evidence.gpu, evidence.step_ms, evidence.step.copy_ms
    if gpu is None or gpu.pcie is None or gpu.pcie_max is None or gpu.readings < _FEW or not copy:
        return None
    ratio = _speed(gpu.pcie) / _speed(gpu.pcie_max)
    if ratio > 0.6 or copy < T.worth * step:
        return None
    best = max(step - copy * (1 - ratio), 0.05 * step)
    return RULE.finding(
        summary=(
            f"The GPU's link runs as PCIe {gpu.pcie[0]} x{gpu.pcie[1]}, the card can do {gpu.pcie_max[0]} "
            f"x{gpu.pcie_max[1]}, and copies take {copy:.3g} ms of each step."
        ),
        gain=gain_between(evidence, best, (best, step - 0.5 * copy * (1 - ratio))),
        evidence=[
            Observation(source="host", text="the link's speed", value=round(ratio, 3), unit="of the card's"),
            Observation(source="trace", text="device time in copies", value=round(copy, 3), unit="ms/step"),
        ],
        fix=Fix(text="another slot or machine; until then, send fewer bytes and overlap the copies"),
    )


def _speed(link: tuple[int, int]) -> float:
    """Each generation doubles a lane."""
    return float(2 ** link[0] * link[1])


RULE = Rule(
    id="X16",
    name="pcie-link-below-card",
    stage="box",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

"""The GPU's clock is held down, by heat or by a power limit below the card's own.

What it looks like
    The same step takes longer as the card warms up, or longer than on another card of its kind.

Why it costs
    What the device computes slows down with its clock. A card that has little room to cool loses a quarter and more.

Fix
    Heat: another machine, fewer jobs on this one, or better cooling. A lowered power limit: `$ nvidia-smi -pl
    WATTS` where you may, else another machine. Clocks set by hand: `$ nvidia-smi -rgc`.
    plain PyTorch: nothing in the script changes it
    HF Trainer:    nothing in the script changes it
    Lightning:     nothing in the script changes it

How it is found
    NVML's reasons and clocks in the readings in which the GPU was busy.

When it stays silent
    Where the clock is near its maximum; where a full power budget holds it (that is the card at work); and where the
    GPU is not what gates.

Not to be confused with
    T2: a GPU that looks busy. An idle GPU lowers its clock by itself.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.rule import Rule

_HELD = 0.30
_HEAT = ("thermal slowdown (software)", "thermal slowdown (hardware)", "hardware slowdown", "power brake (external)")
_BY_HAND = "application clocks set"
_FEW = 3


def check(evidence: Evidence) -> Finding | None:
    """Find a clock that something holds down while the GPU works."""
    gpu = evidence.gpu
    if gpu is None or gpu.readings < _FEW or not gpu.sm_mhz or not gpu.max_sm_mhz or not evidence.on_gpu:
        return None
    ratio = gpu.sm_mhz / gpu.max_sm_mhz
    lowered = gpu.limit_w is not None and gpu.default_limit_w is not None and gpu.limit_w < 0.95 * gpu.default_limit_w
    why = [(share, word) for word, share in gpu.held.items() if share >= _HELD and (word in _HEAT or word == _BY_HAND)]
    if lowered and gpu.held.get("power cap", 0.0) >= _HELD:
        limits = f"power limit of {gpu.limit_w:.0f} W instead of {gpu.default_limit_w:.0f} W"
        why.append((gpu.held["power cap"], limits))
    if not why or ratio > 1 - T.worth:
        return None
    share, word = max(why)
    step = evidence.step_ms
    compute = min(evidence.step.compute_ms or 0.0, step)
    # Computing that waits for memory does not slow down with the clock, so at best all of it and at worst half does.
    saved = compute * (1 - ratio)
    return RULE.finding(
        summary=(
            f"The GPU runs at {gpu.sm_mhz:.0f} of {gpu.max_sm_mhz:.0f} MHz for {100 * share:.0f} % of its busy time: "
            f"{word}."
        ),
        gain=gain_between(evidence, step - saved, (step - saved, step - 0.5 * saved)) if compute else None,
        evidence=[
            Observation(source="host", text="mean clock while busy", value=float(round(gpu.sm_mhz)), unit="MHz"),
            Observation(source="host", text="power", value=gpu.power_w and round(gpu.power_w), unit="W"),
            Observation(source="host", text="temperature", value=gpu.temp_c and round(gpu.temp_c), unit="C"),
        ],
        fix=Fix(text="cool it, give the card its power back, or take another machine"),
    )


RULE = Rule(
    id="U23",
    name="clock-held-down",
    stage="box",
    bound="compute",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)

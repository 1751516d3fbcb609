"""The sentence that a colleague would say."""

from __future__ import annotations

from statistics import median

from underfed.diagnose.split import BELONGS, Split
from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding
from underfed.playbook.evidence import Evidence


def percent(share: float) -> str:
    """Format a share as a whole percentage."""
    return f"{100 * share:.0f} %"


def milliseconds(value: float) -> str:
    """Format ms with three significant figures."""
    if value >= 100:
        return f"{value:.0f} ms"
    if value >= 10:
        return f"{value:.1f} ms"
    return f"{value:.2f} ms"


def _waits(evidence: Evidence, decided: Split) -> str:
    names = {
        "data": "waits for input",
        "transfer": "waits for a copy to the device",
        "sync": "waits for the device to finish",
        "launch": "waits for the next launch",
        "stall": "waits for other work on the training thread",
        "comms": "waits for the exchange between ranks",
    }
    known = {name: value for name, value in evidence.wait_ms.items() if name in names}
    # The largest wait of the bound: another bound's single wait can be larger than each of several that add up to this.
    own = {name: value for name, value in known.items() if BELONGS[name] == decided.bound}
    known = own if any(own.values()) else known
    name = max(known, key=lambda wait: known[wait], default=None)
    if name is None:
        return "waits"
    return f"{names[name]} for {milliseconds(known[name])} of each {milliseconds(evidence.step_ms)} step"


def _late(evidence: Evidence) -> str:
    """Name the rank that the others wait for; nothing where none does noticeably more than they."""
    if len(evidence.ranks) < 2:
        return ""
    late = evidence.skew.late if evidence.skew is not None else ()
    slowest = max((one for one in evidence.ranks if not late or one.rank in late), key=lambda rank: rank.own_ms)
    if evidence.skew is not None:
        known = slowest.rank in late and evidence.skew.waiting >= T.worth * evidence.step_ms
        known = known and (evidence.bound != "comms" or evidence.skew.waiting >= evidence.skew.moving)
    else:
        others = median(rank.own_ms for rank in evidence.ranks if rank.rank != slowest.rank)
        known = slowest.own_ms - others >= T.unsure * evidence.step_ms
    return f" (rank {slowest.rank}, which the others wait for)" if known else ""


def sentence(evidence: Evidence, decided: Split, cause: Finding | None, first: Finding | None = None) -> str:
    """Say what gates the step, and what it comes from; `first` is what would help first, of whatever bound."""
    device = "GPU" if evidence.on_gpu else "CPU"
    if decided.bound == "unknown":
        return f"I cannot tell what gates this run: {decided.why or 'nothing that was measured accounts for it'}."
    if decided.bound == "compute":
        share = evidence.step.device_share or 0.0
        step = milliseconds(evidence.step_ms)
        said = cause or first
        if decided.why:
            fed = f"The loop is at its computing for {percent(min(share, 1.0))} of each {step} step, but {decided.why}."
        else:
            fed = f"The {device} computes for {percent(min(share, 1.0))} of each {step} step"
            fed += "." if said is not None and said is not cause else ": it is well fed."
        return f"{fed} {said.summary}" if said else f"{fed} Only less or faster computing makes it quicker."
    who = "The GPU" if evidence.on_gpu else "Training"
    text = f"{who}{_late(evidence)} {_waits(evidence, decided)}."
    return f"{text} {cause.summary}" if cause else text

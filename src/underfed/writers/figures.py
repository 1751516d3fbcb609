"""A Diagnosis as the figures and words that experiment trackers take."""

from __future__ import annotations

from underfed.diagnosis import Diagnosis
from underfed.report.text import clean
from underfed.report.words import finite

PREFIX = "underfed/"


def figures(diagnosis: Diagnosis) -> dict[str, float]:
    """Return the budget of a step in ms by name, such as `underfed/wait_data_ms`; what is not known is left out."""
    step, waits = diagnosis.step, diagnosis.step.wait_ms
    found = {
        "step_ms": step.ms,
        "device_ms": step.device_ms,
        "device_share": step.device_share,
        "compute_ms": step.compute_ms,
        "copy_ms": step.copy_ms,
        "comms_ms": step.comms_ms,
        "exposed_comms_ms": step.exposed_comms_ms,
        **{f"wait_{name}_ms": getattr(waits, name) for name in waits.__struct_fields__},
    }
    first = next((one.gain for one in diagnosis.findings if one.helps_now and one.gain is not None), None)
    if first is not None:
        found["gain_at_most"] = first.at_most
    return {PREFIX + name: value for name, value in found.items() if finite(value) is not None and value is not None}


def verdict(diagnosis: Diagnosis) -> dict[str, str]:
    """Return the verdict as words by name: bound, cause (empty where none is named), confidence and the sentence."""
    said = diagnosis.verdict
    return {
        PREFIX + "bound": said.bound,
        PREFIX + "cause": clean(said.cause or "", ascii_only=False),
        PREFIX + "confidence": said.confidence,
        PREFIX + "verdict": clean(said.text, ascii_only=False),
    }

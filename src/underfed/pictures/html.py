"""The report as one HTML file: no network, no other file, light and dark, screen and paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from underfed.diagnosis import Diagnosis, Finding
from underfed.errors import UsageError
from underfed.pictures import bundle, kernels, lanes, loader, ranks, steps, tried
from underfed.pictures.counters import counters
from underfed.pictures.material import Material
from underfed.pictures.measured import how
from underfed.pictures.palette import NAMES, variables
from underfed.pictures.shapes import Section
from underfed.pictures.tried import arm_of, ratio_words
from underfed.report.budget import rows
from underfed.report.text import clean
from underfed.report.words import (
    bound_words,
    count,
    device_words,
    finite,
    gain_words,
    gloss,
    has_gpu,
    milliseconds,
    numerics_words,
    quantity,
    step_words,
)
from underfed.trial.records import Arm, Ratio, Trial

_LEFT_OUT_WHERE_EMPTY = frozenset({"ranks", "tried"})
#: Sections that are not about one rank.
_OF_ALL = frozenset({"ranks", "tried"})
_COUNTERS = "Counters of device and host"


def render(material: Material) -> str:
    """Return the report. Raises UsageError where the extra `report` is not installed."""
    try:
        from jinja2 import Environment
        from markupsafe import Markup
    except ImportError:
        raise UsageError(bundle.ADVICE) from None
    import underfed

    script = bundle.script()
    sections = [_of_rank(part.section(material), material) for part in (tried, steps, lanes, loader, kernels, ranks)]
    groups, missing = counters(material)
    absent = [(one.title, one.missing) for one in sections if not one.charts and one.id not in _LEFT_OUT_WHERE_EMPTY]
    absent += [(_COUNTERS, missing)] if missing else []
    page = Environment(autoescape=True, trim_blocks=True).from_string(bundle.file("report.html"))
    text: str = page.render(
        # Only text of our own is marked as safe: the style sheet, the script and the escaped specifications.
        policy=Markup(bundle.policy(script)),  # noqa: S704
        style=Markup(_style()),  # noqa: S704
        script=Markup(script),  # noqa: S704
        specs=Markup(bundle.embedded(_specs(sections))),  # noqa: S704
        version=underfed.__version__,
        title=material.title,
        first=[one for one in sections if one.charts and one.id == "tried"],
        sections=[one for one in sections if one.charts and one.id != "tried"],
        counters=groups,
        counters_title=_COUNTERS,
        absent=absent,
        how=how(material),
        **_verdict(material.diagnosis),
        budget=_budget(material.diagnosis),
        **_findings(material.diagnosis, material.trial),
        limits=[_text(limit) for limit in material.diagnosis.limits],
    )
    # A lone surrogate has no bytes in UTF-8; none of ours needs one.
    return text.encode("utf-8", "replace").decode("utf-8")


def _of_rank(section: Section, material: Material) -> Section:
    """Of several ranks only one is drawn: say which."""
    if material.shown_rank is None or section.id in _OF_ALL or not section.charts:
        return section
    return replace(section, title=f"{section.title}, rank {material.shown_rank}")


def _text(text: str) -> str:
    return clean(text, ascii_only=False)


def _specs(sections: Sequence[Section]) -> dict[str, Any]:
    return {chart.id: chart.spec for section in sections for chart in section.charts if chart.spec is not None}


def _style() -> str:
    swatches = "\n".join(f".c-{name} {{ background: var(--c-{name}); }}" for name in NAMES)
    text = bundle.file("style.css").replace("@SWATCHES@", swatches)
    return text.replace("@LIGHT@", variables(dark=False)).replace("@DARK@", variables(dark=True))


def _verdict(diagnosis: Diagnosis) -> dict[str, Any]:
    verdict = diagnosis.verdict
    words = bound_words(verdict.bound, diagnosis.subject)
    name = next((finding.name for finding in diagnosis.findings if finding.rule == verdict.cause), "")
    return {
        "headline": words[0].upper() + words[1:],
        "bound": verdict.bound,
        "gloss": gloss(verdict.bound),
        "confidence": verdict.confidence,
        "cause": _text(f"{verdict.cause} {name}") if verdict.cause is not None else None,
        "sentence": _text(verdict.text),
        "settle": _text(verdict.settle) if verdict.settle is not None else None,
    }


def _budget(diagnosis: Diagnosis) -> dict[str, Any]:
    step, subject = diagnosis.step, diagnosis.subject
    found = rows(step, device=device_words(subject), clock=step_words(diagnosis))
    shown = []
    for row in found:
        share = 0.0 if row.label == "step" else round(100 * row.share, 2)
        kind = row.label if row.label in NAMES else "none" if row.label == "step" else "other"
        shown.append({**vars(row), "width": share, "kind": kind})
    # Rows that are counted twice must not push the bar beyond its end.
    whole = sum(row["width"] for row in shown)
    if whole > 100:
        for one in shown:
            one["width"] = round(100 * one["width"] / whole, 2)
    steps = "1 step" if subject.steps == 1 else f"{count(subject.steps)} steps"
    on = f" on {_text(subject.device)}" if subject.device is not None else ""
    title = f"A step takes {milliseconds(step.ms)}{on} ({steps}, {count(subject.warmup_steps)} left out as warm-up)"
    parts = [(row.label, f"{row.ms} ms") for row in found if row.label != "step" and row.share > 0]
    return {
        "title": title,
        "rows": shown,
        "says": "Parts of a step: " + (", ".join(" ".join(part) for part in parts) or "not known"),
        "device": _device(diagnosis) if has_gpu(subject) else None,
    }


def _device(diagnosis: Diagnosis) -> str | None:
    step = diagnosis.step
    known = (
        (step.compute_ms, "compute"),
        (step.copy_ms, "copies"),
        *(
            ((step.comms_ms, "communication"), (step.exposed_comms_ms, "of it not covered by compute"))
            if finite(step.comms_ms)
            else ()
        ),
    )
    parts = [f"{milliseconds(value)} {what}" for value, what in known if finite(value) is not None]
    return f"The device's work: {', '.join(parts)}." if parts else None


def _findings(diagnosis: Diagnosis, trial: Trial | None) -> dict[str, Any]:
    fixes = [finding for finding in diagnosis.findings if finding.helps_now]
    aside = [finding for finding in diagnosis.findings if not finding.helps_now]
    tops = [_factor(one.gain.at_most) for one in fixes if one.gain is not None]
    tops += [
        _factor(arm.gain.high) for one in fixes if (arm := arm_of(trial, one)) is not None and arm.gain is not None
    ]
    scale = max([*tops, 2.0])
    said = diagnosis.verdict.text
    return {
        "fixes": [_fix(finding, scale, said, arm_of(trial, finding)) for finding in fixes],
        "scale": f"{scale:.3g}" if any(one.gain is not None for one in fixes) else None,
        "aside": [
            {
                "rule": _text(one.rule),
                "name": _text(one.name),
                "where": _text(one.where) if one.where else None,
                "note": _text(one.note or "the reason was not given"),
            }
            for one in aside
        ],
    }


def _factor(value: float) -> float:
    known = finite(value)
    return max(1.0, known) if known is not None else 1.0


def _fix(finding: Finding, scale: float, said: str, arm: Arm | None) -> dict[str, Any]:
    measured = arm.gain if arm is not None else None
    return {
        "rule": _text(finding.rule),
        "name": _text(finding.name),
        "summary": _text(finding.summary) if finding.summary not in said else "",
        "where": _text(finding.where) if finding.where else None,
        "words": gain_words(finding.gain),
        "gain": _gain(finding, scale, measured),
        "measured": ratio_words(measured)
        if measured is not None
        else "measured"
        if any(one.source == "trial" for one in finding.evidence)
        else None,
        "text": _text(finding.fix.text),
        "code": _code(finding.fix.code),
        "try_": _text(finding.fix.try_) if finding.fix.try_ else None,
        "numerics": numerics_words(finding.numerics),
        "evidence": [
            {"text": _text(f"{one.text}{quantity(one.value, one.unit)}"), "source": one.source}
            for one in finding.evidence
        ],
    }


def _code(code: str | None) -> str | None:
    if code is None:
        return None
    return "\n".join(line[: len(line) - len(line.lstrip(" "))][:32] + _text(line) for line in code.splitlines()[:20])


def _gain(finding: Finding, scale: float, measured: Ratio | None) -> dict[str, Any] | None:
    """Places on the scale of 200 units from 1x on, logarithmic: factors that multiply are equal steps."""
    gain = finding.gain
    if gain is None:
        return None

    def at(factor: float) -> float:
        return round(200 * math.log(_factor(factor)) / math.log(scale), 1)

    low = high = None
    if gain.expected is not None:
        low, high = at(gain.expected[0]), at(gain.expected[1])
    return {
        "most": min(200.0, at(gain.at_most)),
        "low": low,
        "width": max(3.0, min(200.0, high) - low) if low is not None and high is not None else None,
        "measured": [at(measured.low), at(measured.value), at(measured.high)] if measured is not None else None,
        "words": f"gain: {gain_words(gain)}{f'; {ratio_words(measured)}' if measured is not None else ''}",
    }

"""Diagnosis and Recording in a notebook: small HTML without scripts, every name in it escaped; and as one line."""

from __future__ import annotations

from html import escape

from underfed.diagnosis import Diagnosis, Finding
from underfed.pictures.palette import CLASSES
from underfed.recording.read import Recording
from underfed.report.budget import rows
from underfed.report.text import clean
from underfed.report.words import (
    bound_words,
    count,
    device_words,
    finite,
    gain_words,
    gloss,
    milliseconds,
    numerics_words,
    quantity,
    step_words,
)

_MOST_FIXES = 5
_MOST_EVIDENCE = 5
_MOST_LIMITS = 8
_DAY = "".join(f"--c-{name}:{day};" for name, _, day, _ in CLASSES)
_NIGHT = "".join(f"--c-{name}:{night};" for name, _, _, night in CLASSES)
#: Notebooks have a theme of their own that need not be the system's: JupyterLab and VS Code say which.
_STYLE = (
    f".underfed-it{{{_DAY}--line:#8884;color:inherit;font:13px/1.45 system-ui,sans-serif;max-width:52em}}"
    f"@media (prefers-color-scheme:dark){{.underfed-it{{{_NIGHT}}}}}"
    f'[data-jp-theme-light="true"] .underfed-it{{{_DAY}}}[data-jp-theme-light="false"] .underfed-it{{{_NIGHT}}}'
    f".vscode-light .underfed-it{{{_DAY}}}.vscode-dark .underfed-it{{{_NIGHT}}}"
    ".underfed-it .u-bar{display:flex;height:1.1em;border-radius:3px;overflow:hidden;margin:.5em 0;"
    "background:var(--line)}"
    ".underfed-it .u-bar i{display:block;height:100%}"
    ".underfed-it .u-key{display:inline-block;width:.75em;height:.75em;border-radius:2px;margin-right:.4em}"
    ".underfed-it table{border-collapse:collapse;font-variant-numeric:tabular-nums;color:inherit}"
    ".underfed-it td,.underfed-it th{padding:1px 10px 1px 0;text-align:left;border:0}"
    ".underfed-it td.u-n{text-align:right}"
    ".underfed-it code{background:var(--line);padding:0 .25em;border-radius:3px;color:inherit}"
    ".underfed-it summary{cursor:pointer}.underfed-it p{margin:.35em 0}.underfed-it ol,.underfed-it ul{margin:.2em 0}"
)


def _text(text: str) -> str:
    """Return cleaned and escaped text, for any place in HTML."""
    return escape(clean(text, ascii_only=False), quote=True)


def _page(body: list[str], label: str) -> str:
    return f'<div class="underfed-it" role="group" aria-label="{label}"><style>{_STYLE}</style>{"".join(body)}</div>'


def diagnosis_line(diagnosis: Diagnosis) -> str:
    """Return the verdict in one line that is safe to print."""
    verdict = diagnosis.verdict
    cause = f" ({clean(verdict.cause)})" if verdict.cause is not None else ""
    words = bound_words(verdict.bound, diagnosis.subject)
    return f"underfed: {words}{cause}, {verdict.confidence} confidence, step {milliseconds(diagnosis.step.ms)}"


def diagnosis_html(diagnosis: Diagnosis) -> str:
    """Return the card as HTML: the verdict, the budget of a step, fixes in order, limits."""
    verdict = diagnosis.verdict
    name = next((one.name for one in diagnosis.findings if one.rule == verdict.cause), "")
    cause = f", cause {_text(f'{verdict.cause} {name}'.strip())}" if verdict.cause is not None else ""
    body = [
        f"<p><b>{escape(bound_words(verdict.bound, diagnosis.subject))}</b> ({escape(gloss(verdict.bound))}, "
        f"{verdict.confidence} confidence){cause}</p><p>{_text(verdict.text)}</p>"
    ]
    if verdict.settle is not None:
        body.append(f"<p>To settle it: {_text(verdict.settle)}</p>")
    body += _budget(diagnosis)
    fixes = [one for one in diagnosis.findings if one.helps_now]
    if fixes:
        body.append("<p><b>What to do, first things first</b></p><ol>")
        body += [_fix(one, verdict.text) for one in fixes[:_MOST_FIXES]]
        body.append("</ol>")
    if diagnosis.limits:
        kept = "".join(f"<li>{_text(limit)}</li>" for limit in diagnosis.limits[:_MOST_LIMITS])
        body.append(f"<details><summary>What this cannot show</summary><ul>{kept}</ul></details>")
    return _page(body, "underfed: diagnosis")


def _budget(diagnosis: Diagnosis) -> list[str]:
    step, subject = diagnosis.step, diagnosis.subject
    if finite(step.ms) is None:
        return []
    on = "" if subject.device is None else f" on {_text(subject.device)}"
    body = [f"<p>A step takes <b>{milliseconds(step.ms)}</b>{on} ({count(subject.steps)} steps)</p>"]
    every = rows(step, device=device_words(subject), clock=step_words(diagnosis))
    parts = [row for row in every if row.share > 0 and row.label != "step"]
    said = ", ".join(f"{row.label} {row.percent} %" for row in parts)
    bars = "".join(f'<i style="width:{100 * row.share:.2f}%;background:{_colour(row.label)}"></i>' for row in parts)
    body.append(f'<div class="u-bar" role="img" aria-label="{escape(said)}">{bars}</div><table>')
    for row in every:
        if row.ms == "?" or (row.share <= 0 and row.label != "step"):
            continue
        key = "" if row.label == "step" else f'<span class="u-key" style="background:{_colour(row.label)}"></span>'
        body.append(
            f"<tr><th>{key}{escape(row.label)}</th><td>{escape(row.meaning)}</td>"
            f'<td class="u-n">{row.ms} ms</td><td class="u-n">{row.percent} %</td></tr>'
        )
    return [*body, "</table>"]


def _colour(label: str) -> str:
    known = {name for name, *_ in CLASSES}
    return f"var(--c-{label if label in known else 'other'})"


def _fix(finding: Finding, said: str) -> str:
    where = f" at <code>{_text(finding.where)}</code>" if finding.where is not None else ""
    lines = [f"<b>{_text(finding.rule)} {_text(finding.name)}</b>: {escape(gain_words(finding.gain))}{where}"]
    if finding.summary not in said:
        lines.append(_text(finding.summary))
    lines.append(f"Fix: {_text(finding.fix.text)}")
    if finding.fix.try_ is not None:
        lines.append(f"Try: <code>{_text(finding.fix.try_)}</code>")
    numerics = numerics_words(finding.numerics)
    if numerics is not None:
        lines.append(f"Note: {escape(numerics)}")
    lines += [
        _text(f"{one.text}{quantity(one.value, one.unit)} [{one.source}]") for one in finding.evidence[:_MOST_EVIDENCE]
    ]
    return f"<li>{'<br>'.join(lines)}</li>"


def _facts(recording: Recording) -> list[tuple[str, str]]:
    steps = [len(log.step_rows()) for log in recording.processes]
    facts = [
        ("folder", str(recording.folder)),
        ("started", str(recording.header.get("started", "not known"))),
        ("training processes", str(sum(one > 0 for one in steps))),
        ("steps", str(max(steps, default=0))),
        ("loader workers", str(len(recording.workers))),
    ]
    return [(name, value if len(value) <= 300 else f"...{value[-297:]}") for name, value in facts]


def recording_line(recording: Recording) -> str:
    """Return what a Recording holds in one line that is safe to print."""
    facts = dict(_facts(recording))
    parts = [
        f"{facts[name]} {name.removesuffix('es' if name.endswith('sses') else 's') if facts[name] == '1' else name}"
        for name in ("steps", "training processes", "loader workers")
    ]
    return f"underfed recording: {', '.join(parts)}, in {clean(facts['folder'])}"


def recording_html(recording: Recording) -> str:
    """Return what a Recording holds as a small table."""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{_text(value)}</td></tr>" for name, value in _facts(recording))
    return _page([f"<table>{body}</table>"], "underfed: recording")

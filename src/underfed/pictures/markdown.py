"""The report as Markdown for issues and pull requests: short, and nothing in it becomes markup, a mention or a link."""

from __future__ import annotations

import re

import underfed
from underfed.diagnosis import Diagnosis, Finding
from underfed.report.budget import rows
from underfed.report.text import clean
from underfed.report.words import (
    bound_words,
    count,
    device_words,
    gain_words,
    gloss,
    milliseconds,
    numerics_words,
    quantity,
    step_words,
)

_MOST_FIXES = 5
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&^=-])")
#: GitHub makes links of these even where they are escaped; an empty comment in between stops it.
_LINKS = re.compile(r"(?=://)|(?<=@)|(?<=#)(?=\d)|(?<=\bGH)(?=\\?-\d)|(?<=\bwww)(?=\.)", re.IGNORECASE)


def render(diagnosis: Diagnosis) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    verdict, subject, step = diagnosis.verdict, diagnosis.subject, diagnosis.step
    words = bound_words(verdict.bound, subject)
    page = [f"### underfed: {words} ({gloss(verdict.bound)}), {verdict.confidence} confidence", ""]
    page.append(prose(verdict.text))
    if verdict.settle is not None:
        page += ["", f"To settle it: {code(verdict.settle)}"]
    on = "" if subject.device is None else f" on {prose(subject.device)}"
    steps = "1 step" if subject.steps == 1 else f"{count(subject.steps)} steps"
    page += ["", f"**A step takes {milliseconds(step.ms)}**{on} ({steps})", ""]
    page += ["| part | what it is | ms | % |", "|---|---|--:|--:|"]
    for row in rows(step, device=device_words(subject), clock=step_words(diagnosis)):
        strong = "**" if row.label == "step" else ""
        page.append(f"| {strong}{row.label}{strong} | {row.meaning} | {row.ms} | {row.percent} |")
    fixes = [finding for finding in diagnosis.findings if finding.helps_now]
    if fixes:
        page += ["", "**What to do, first things first**", ""]
        for at, finding in enumerate(fixes[:_MOST_FIXES], 1):
            page += _fix(at, finding, verdict.text)
        if len(fixes) > _MOST_FIXES:
            page.append(f"\nand {len(fixes) - _MOST_FIXES} more")
    if diagnosis.limits:
        page += ["", "<details><summary>What this cannot show</summary>", ""]
        page += [f"- {prose(limit)}" for limit in diagnosis.limits]
        page += ["", "</details>"]
    page += ["", f"<sub>underfed {underfed.__version__}</sub>"]
    return "\n".join(page) + "\n"


def _fix(at: int, finding: Finding, said: str) -> list[str]:
    head = f"{at}. **{prose(finding.rule)} {prose(finding.name)}**: {prose(gain_words(finding.gain))}"
    if any(one.source == "trial" for one in finding.evidence):
        head += " (measured)"
    if finding.where:
        head += f" at {code(finding.where)}"
    page = [head]
    if finding.summary not in said:
        page.append(f"   - {prose(finding.summary)}")
    page.append(f"   - fix: {prose(finding.fix.text)}")
    if finding.fix.code is not None:
        page += fenced(finding.fix.code, "     ")
    if finding.fix.try_ is not None:
        page.append(f"   - try: {code(finding.fix.try_)}")
    numerics = numerics_words(finding.numerics)
    if numerics is not None:
        page.append(f"   - note: {numerics}")
    page += [
        f"   - {prose(one.text + quantity(one.value, one.unit))} ({one.source})"
        for one in finding.evidence[:_MOST_FIXES]
    ]
    return page


def prose(text: str) -> str:
    """Return text as one line in which nothing is markup, HTML, a mention or a link."""
    escaped = _MARKUP.sub(r"\\\1", clean(text, ascii_only=False))
    return _LINKS.sub("<!-- -->", escaped)


def code(text: str) -> str:
    """Return text as a code span, with a fence that is longer than any run of backticks in it."""
    line = clean(text, ascii_only=False) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    gap = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def fenced(text: str, indent: str) -> list[str]:
    """Return lines of code as a block behind an indent."""
    lines = [
        line[: len(line) - len(line.lstrip(" "))][:32] + clean(line, ascii_only=False) for line in text.splitlines()
    ]
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{indent}{fence}python", *(f"{indent}{line}" for line in lines[:20]), f"{indent}{fence}"]

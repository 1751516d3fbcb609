"""Kernels by time, with the rule that speaks to them."""

from __future__ import annotations

from dataclasses import replace

from underfed.diagnosis import Diagnosis
from underfed.pictures.kernel_names import short
from underfed.pictures.material import Material
from underfed.pictures.shapes import Chart, Section, Table, number
from underfed.report.text import clean
from underfed.report.words import has_gpu
from underfed.timeline import names as n

_EMPTY = Section(id="kernels", title="Kernels by time")

_MOST = 15
_LONGEST_NAME = 600
_MS = 1e-6


def section(material: Material) -> Section:
    """Return the section about kernels."""
    facts = material.facts
    if facts is None and not has_gpu(material.diagnosis.subject):
        return replace(_EMPTY, missing="The CPU is the device here: there are no kernels.")
    if facts is None:
        why = "The device was not traced, so nothing is known of its kernels."
        return replace(_EMPTY, missing=why)
    if not facts.kernels:
        return replace(_EMPTY, missing="There is no kernel in the trace.")
    total = sum(row.total_ns for row in facts.kernels)
    said = {finding.rule for finding in material.diagnosis.findings}
    rows: list[tuple[str | None, ...]] = [
        (
            short(row.name),
            number(row.total_ns * _MS),
            f"{100 * row.total_ns / total:.1f} %",
            str(row.count),
            number(row.median_ns * 1e-3),
            ", ".join(rules_of(row.name, said)) or "-",
        )
        for row in facts.kernels[:_MOST]
    ]
    table = Table(
        columns=("kernel", "total ms", "share", "calls", "median us", "rule"),
        rows=rows,
        names=frozenset({0}),
        full=[clean(row.name, ascii_only=False)[:_LONGEST_NAME] for row in facts.kernels[:_MOST]],
        bars=[row.total_ns / total for row in facts.kernels[:_MOST]],
        caption="Kernels with most time in the traced steps",
    )
    shown = sum(row.total_ns for row in facts.kernels[:_MOST])
    says = (
        f"{facts.kernel_names} kernels by name; the {len(rows)} shown hold {100 * shown / total:.0f} % of their time."
    )
    chart = Chart(id="kernel-chart", title="Kernels with most time", says=says, table=table, open=True)
    return replace(_EMPTY, charts=[chart], notes=_notes(material.diagnosis))


def _notes(diagnosis: Diagnosis) -> list[str]:
    if diagnosis.verdict.bound in {"data", "host"}:
        return ["Faster kernels would not shorten the step now: the device waits for most of it."]
    return []


def rules_of(name: str, said: set[str]) -> list[str]:
    """Return those rules of the diagnosis that speak to a kernel by its name."""
    found = []
    if n.is_layout(name):
        found.append("T11")
    if n.tensor_cores(name) == "no":
        found += ["T9", "T13"]
    if "softmax" in name.lower() or n.attention_of_kernel(name) == "math":
        found.append("T14")
    if n.is_comms(name):
        found += ["T23", "X13"]
    return [rule for rule in found if rule in said]

"""The table of the manual's numbers against the registries, the tests that it names, and the rules themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from underfed.audit.registry import RULES as AUDIT
from underfed.diagnosis import Step
from underfed.playbook.evidence import Evidence
from underfed.playbook.registry import RULES, find
from underfed.report.manual import NUMBERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/numbers.md").read_text(encoding="utf-8")
#: What the manual's text on throughput numbers or points to.
WANTED = (
    [f"T{n}" for n in range(1, 24)]
    + [f"U{n}" for n in (8, 9, 10, 17, 21, 23, 24, 25, 28, 38, 40)]
    + [f"M{n}" for n in (5, 6, 7, 8, 18, 19)]
    + [f"P{n}" for n in (*range(1, 11), 19)]
)
KINDS = {"agent", "host", "trace", "static", "trial"}


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of a table by its first column; `heading` is that of the table's second column."""
    table = PAGE.partition(heading)[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines() if line[:2] == "| "]
    return {row[0].strip("| "): row[1:] for row in cells}


COVERED = rows("| number | about | rules | commands | evidence |")
TESTED = rows("| number | where its rules have to speak, and its commands to answer |")
LEFT = rows("| number | about | what is missing, and why |")


def test_every_number_has_a_row_with_evidence_and_tests_or_a_reason() -> None:
    assert set(WANTED) <= set(COVERED) | set(LEFT)
    assert {number.id for number in NUMBERS} == set(WANTED)
    assert set(TESTED) == set(COVERED)
    for name, (_, rules, commands, kinds) in COVERED.items():
        assert rules or commands, name
        assert set(kinds.split(", ")) <= KINDS and kinds, name
        assert "`tests/" in TESTED[name][0], name
    for name, (_, reason) in LEFT.items():
        assert len(reason) > 5, name


def test_rules_in_the_table_are_registered_and_those_that_bear_a_number_are_in_its_row() -> None:
    known = {rule.id for rule in (*RULES, *AUDIT)}
    for name, (_, rules, *_rest) in COVERED.items():
        assert set(re.findall(r"\[([A-Z]\d+)\]", rules)) <= known, name
    for rule in RULES:
        if rule.id in WANTED:
            assert f"[{rule.id}]" in COVERED[rule.id][1], rule.id


def test_tests_that_the_table_names_exist() -> None:
    named = set(re.findall(r"`(tests/[^`]+)`", PAGE))
    assert len(named) > 40
    for name in named:
        file, _, test = name.partition("::")
        path = ROOT / file
        assert path.is_file(), name
        function, _, parameter = test.partition("[")
        if function:
            source = path.read_text(encoding="utf-8")
            functions = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
            assert function in functions, name
        if "h200" in file and parameter:
            assert (ROOT / f"tests/fixtures/h200/{parameter.rstrip(']')}.before").is_dir(), name


def test_every_rule_has_a_test_in_which_it_has_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from docs_tests import tests_of

    from underfed.report.rulebook import entries

    assert [entry.id for entry in entries() if not tests_of(entry)] == []


def test_kinds_of_evidence_hold_what_findings_really_bear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table reads the kinds from the sources of the rules; findings of the labelled recordings must keep to it."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from docs_pages import kinds

    from underfed.diagnose.run import diagnose
    from underfed.diagnose.traced import read_window
    from underfed.recording.read import read
    from underfed.report.rulebook import find_entry

    seen = 0
    for recording in sorted((ROOT / "tests/fixtures/h200").glob("*.before")):
        for finding in diagnose(read(recording), read_window).findings:
            entry = find_entry(finding.rule)
            assert entry is not None
            assert {fact.source for fact in finding.evidence} <= set(kinds(entry)), finding.rule
            seen += len(finding.evidence)
    assert seen > 50


def with_checkpointing(free: float, *, on: bool = True) -> Evidence:
    total = 100 << 30
    memory = {"peak": int((1 - free) * total), "total": total}
    step = Step(ms=100.0, device_ms=95.0, device_share=0.95)
    return Evidence(
        kind="run", on_gpu=True, bound="compute", step=step, torch={"checkpointing": on, "memory": memory}, steps=100
    )


def test_checkpointing_with_free_memory_is_found() -> None:
    rule = find("T17")
    assert rule is not None
    assert rule.check(with_checkpointing(0.75)) is not None
    assert rule.check(with_checkpointing(0.05)) is None
    assert rule.check(with_checkpointing(0.75, on=False)) is None

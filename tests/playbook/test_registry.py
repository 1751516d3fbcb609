"""What every rule owes: an id, a slug, a place in the order of cost, and a docstring from which its page is made."""

from __future__ import annotations

import re
from typing import get_args

import msgspec
import pytest
from rule_cases import SPEAKS

from underfed.diagnosis import Bound, Diagnosis, Numerics, Stage, Subject, Verdict
from underfed.playbook.figures import FIGURES
from underfed.playbook.registry import RULES, find
from underfed.playbook.rule import Rule
from underfed.report.card import render
from underfed.report.rulebook import find_entry
from underfed.report.rulepage import page
from underfed.report.words import numerics_words

SECTIONS = (
    "What it looks like",
    "Why it costs",
    "Fix",
    "How it is found",
    "When it stays silent",
    "Not to be confused with",
)
EVERY = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)


def test_ids_and_names_are_unique() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


def test_the_order_is_that_of_cost() -> None:
    stages = [get_args(Stage).index(rule.stage) for rule in RULES]
    assert stages == sorted(stages)


@EVERY
def test_fields_are_of_the_contract(rule: Rule) -> None:
    assert re.fullmatch(r"[TUMPX][1-9]\d?[a-z]?", rule.id)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.bound in get_args(Bound)
    assert rule.numerics in get_args(Numerics)
    assert rule.stage in get_args(Stage)


@EVERY
def test_the_docstring_has_every_section_in_order_with_text(rule: Rule) -> None:
    lines = rule.doc.splitlines()
    assert lines[0].endswith(".") and len(lines[0]) > 20
    at = [lines.index(section) for section in SECTIONS]
    assert at == sorted(at)
    for begin in at:
        assert lines[begin + 1].startswith("    ") and lines[begin + 1].strip()


@EVERY
def test_rules_that_a_docstring_names_exist(rule: Rule) -> None:
    neighbours = rule.doc[rule.doc.index("Not to be confused with") :]
    for named in re.findall(r"\b([TX]\d{1,2})\b(?! to)", neighbours):
        assert find(named) is not None, f"{rule.id} names {named}"


@EVERY
def test_a_rule_is_found_by_id_and_by_name_in_any_case(rule: Rule) -> None:
    assert find(rule.id) is rule
    assert find(f"  {rule.id.lower()} ") is rule
    assert find(rule.name.upper()) is rule


@pytest.mark.parametrize("wanted", ["", "T", "T0", "T999", "too-few", "\x00", "T4 T5"])
def test_what_is_no_rule_is_not_found(wanted: str) -> None:
    assert find(wanted) is None


def test_figures_belong_to_rules_and_stand_on_their_pages() -> None:
    for figure in FIGURES:
        entry = find_entry(figure.rule)
        assert entry is not None, figure.rule
        shown = " ".join(page(entry).split())
        assert "Published figures" in shown and figure.source in shown, figure.rule
        assert f"verified {figure.verified}" in shown and figure.line().count("verified") == 1


WITH_NUMBERS = [name for name in SPEAKS if (rule := find(name)) and rule.numerics in ("precision", "semantic")]


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_a_fix_that_changes_the_science_says_so_on_the_card_and_on_its_page(name: str) -> None:
    """A standing warning: in the finding's words or as the class's own sentence, for every such rule."""
    rule = find(name)
    assert rule is not None
    finding = rule.check(SPEAKS[name])
    assert finding is not None and finding.numerics == rule.numerics
    diagnosis = Diagnosis(
        subject=Subject(kind="run", paths=["x"]),
        verdict=Verdict(bound=finding.bound, confidence="high", text="x"),
        findings=[msgspec.structs.replace(finding, helps_now=True)],
    )
    warned = numerics_words(rule.numerics)
    assert warned is not None
    assert warned in " ".join(render(diagnosis).split())
    entry = find_entry(name)
    assert entry is not None and warned in " ".join(page(entry).split())


def test_a_pinned_batch_stays_pinned() -> None:
    rule = find("T18")
    assert rule is not None and "pinned for comparisons stays pinned" in " ".join(rule.doc.split())
    finding = rule.check(SPEAKS["T18"])
    assert finding is not None and finding.note is not None and "pinned" in finding.note
    assert "changes the experiment where the effective batch changes" in finding.note

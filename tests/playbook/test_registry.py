"""What every rule owes: an id, a slug, a place in the order of cost, and a docstring from which its page is made."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from underfed.diagnosis import Bound, Numerics, Stage
from underfed.playbook.registry import RULES, find
from underfed.playbook.rule import Rule

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

"""How a finding says it can be tried: a command that `underfed try` takes as it stands, or none."""

from __future__ import annotations

import shlex

import pytest
from rule_cases import SPEAKS
from test_causes import exchanging

from underfed.diagnose.assemble import findings_of
from underfed.diagnosis import Finding
from underfed.playbook.evidence import Evidence
from underfed.playbook.switches import BY_RULE, with_trials
from underfed.trial.knobs import Change, parse


def change_of(finding: Finding) -> Change | None:
    if finding.fix.try_ is None:
        return None
    program, command, word, *rest = shlex.split(finding.fix.try_)
    assert (program, command, rest) == ("underfed", "try", ["--", "COMMAND"])
    (change,) = parse([word])
    return change


@pytest.mark.parametrize("seen", SPEAKS.values(), ids=SPEAKS)
def test_each_finding_that_can_be_switched_names_a_command_that_needs_no_more(seen: Evidence) -> None:
    findings = findings_of(seen)
    for finding in with_trials(findings):
        change = change_of(finding)
        if not finding.helps_now or finding.rule not in BY_RULE:
            assert change is None, finding
        else:
            assert change is not None and change.rule == finding.rule and change.known, finding


@pytest.mark.parametrize("name", ["T3", "T4", "T7"])
def test_the_value_is_the_one_that_the_fix_asks_for(name: str) -> None:
    finding = next(one for one in with_trials(findings_of(SPEAKS[name])) if one.rule == name)
    change = change_of(finding)
    assert change is not None
    assert f"={change.switches[0][1]}" in f"{finding.fix.text} {finding.fix.code}"


def test_what_an_exchange_asks_for_can_be_tried() -> None:
    for buckets, size in (((1_000_000,) * 20, "50"), ((400_000_000,), "100")):
        finding = next(one for one in with_trials(findings_of(exchanging(buckets))) if one.rule == "T23")
        change = change_of(finding)
        assert change is not None and change.switches == (("bucket_cap_mb", size),)

"""Recordings of labelled runs on an H200: the bound, the first rule and the bound on its gain are as the labels say."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.diagnosis import Diagnosis, Finding
from underfed.recording.read import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "h200"
LABELS: dict[str, dict[str, Any]] = json.loads((FIXTURES / "labels.json").read_text(encoding="utf-8"))
PLANTED = [name for name, label in LABELS.items() if label["rules"]]
SCORED = [name for name in PLANTED if LABELS[name]["gain"]]


@cache
def diagnosed(name: str) -> Diagnosis:
    return diagnose(read(FIXTURES / f"{name}.before"), read_window)


def acceptable(finding: Finding, rules: list[str]) -> bool:
    """`X:word` stands for any rule outside the numbering with that word in its name."""
    for rule in rules:
        own, _, word = rule.partition(":")
        if finding.rule == rule or (own == "X" and word and finding.rule[0] == "X" and word in finding.name):
            return True
    return False


def test_every_recording_has_a_label() -> None:
    assert {path.name for path in FIXTURES.glob("*.before")} == {f"{name}.before" for name in LABELS}


def test_no_recording_names_a_machine() -> None:
    for path in FIXTURES.glob("*.before/*.json*"):
        if path.suffix != ".gz":
            text = path.read_text(encoding="utf-8")
            assert '"/' not in text, f"{path.name} holds an absolute path"


@pytest.mark.parametrize("name", LABELS)
def test_the_device_was_traced(name: str) -> None:
    found = diagnosed(name)
    assert found.step.device_ms is not None
    assert found.step.device_ms > 0


@pytest.mark.parametrize("name", LABELS)
def test_the_bound_is_right(name: str) -> None:
    assert diagnosed(name).verdict.bound == LABELS[name]["class"]


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_finding_is_the_planted_fault(name: str) -> None:
    findings = diagnosed(name).findings
    assert findings, "no finding"
    assert findings[0].helps_now
    assert acceptable(findings[0], LABELS[name]["rules"]), f"{findings[0].rule} {findings[0].name}"


@pytest.mark.parametrize("name", [name for name in LABELS if not LABELS[name]["rules"]])
def test_a_healthy_run_draws_no_alarm(name: str) -> None:
    assert [finding.rule for finding in diagnosed(name).findings if finding.helps_now] == []


@pytest.mark.parametrize("name", SCORED)
def test_the_true_gain_is_not_above_the_bound(name: str) -> None:
    first = next(f for f in diagnosed(name).findings if acceptable(f, LABELS[name]["rules"]))
    assert first.gain is not None
    assert first.gain.at_most >= LABELS[name]["gain"]

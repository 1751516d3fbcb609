"""What is held against the truth of a planted script: by live runs, by runs that end early, by kept recordings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from expect import Planted
from harness import Ended, fault_lines, missing, watched

Runs = dict[str, tuple[Ended, dict[str, Any] | None]]
"""Each watched run with its diagnosis, None where none was written, so that several tests can look at it."""

NEGATION = re.compile(r"\b(not|no|never|cannot|without|nor|instead)\b|n't\b", re.IGNORECASE)


def look(planted: Planted, tmp_path: Path, runs: Runs) -> tuple[Ended, dict[str, Any] | None]:
    """Return the watched run of a script and its diagnosis; None where no diagnosis was written."""
    if absent := missing(planted):
        pytest.skip(f"not installed here: {', '.join(absent)}")
    if planted.id not in runs:
        place = tmp_path / "work"
        place.mkdir()
        file = tmp_path / "d.json"
        ended = watched(planted, place, out=tmp_path / "recording", json=file)
        assert list(place.iterdir()) == [], "a run leaves nothing in the working folder"
        runs[planted.id] = ended, json.loads(file.read_bytes()) if file.exists() else None
    return runs[planted.id]


def agrees(rule: str, finding: dict[str, Any]) -> bool:
    """Say whether a finding is the rule: by its manual id, or by a word of the name (`X:word`)."""
    if rule.startswith("X:"):
        return rule[2:] in finding["name"]
    return bool(finding["rule"] == rule)


def first(diagnosis: dict[str, Any]) -> dict[str, Any]:
    """Return the finding that is advised first."""
    helping = [f for f in diagnosis["findings"] if f["helps_now"]]
    assert helping, f"no advice; verdict: {diagnosis['verdict']}"
    return helping[0]


def place(finding: dict[str, Any]) -> tuple[str, int] | None:
    """Return file name and line of a finding."""
    if finding["where"] is None:
        return None
    file, _, line = finding["where"].rpartition(":")
    return Path(file).name, int(line)


def assert_bound(planted: Planted, diagnosis: dict[str, Any], said: str) -> None:
    """The bound is one that is right."""
    assert diagnosis["verdict"]["bound"] in planted.bounds, said


def assert_cause(planted: Planted, diagnosis: dict[str, Any], said: str) -> None:
    """The first advice and the verdict's cause are the planted fault."""
    finding = first(diagnosis)
    assert any(agrees(rule, finding) for rule in planted.rules), said
    assert any(agrees(rule, {"rule": diagnosis["verdict"]["cause"], "name": finding["name"]}) for rule in planted.rules)


def assert_place(planted: Planted, diagnosis: dict[str, Any], said: str) -> None:
    """The first advice points to the line of the fault."""
    finding = first(diagnosis)
    where = place(finding)
    if where is None and not planted.place:
        return
    assert where is not None, said
    assert where[0] == planted.script
    assert where[1] in fault_lines(planted.script, finding["rule"]), said


def assert_harmless(planted: Planted, diagnosis: dict[str, Any], said: str) -> None:
    """Nothing is advised that would help nothing."""
    for finding in diagnosis["findings"]:
        if not finding["helps_now"]:
            continue
        assert not planted.quiet, f"alarm where nothing is wrong: {finding}\n{said}"
        assert finding["rule"] not in planted.never, said
        advice = " ".join((finding["summary"], finding["fix"]["text"], finding["fix"].get("code") or ""))
        for clause in re.split(r"[.;:,]\s|\n", advice):
            if not NEGATION.search(clause):
                for pattern in planted.never_said:
                    assert not re.search(pattern, clause, re.IGNORECASE), f"{advice}\n{said}"


def assert_steps(planted: Planted, diagnosis: dict[str, Any], said: str) -> None:
    """Steps are optimizer steps, and the parts of one add up to it."""
    if planted.steps is None:
        return
    subject, step = diagnosis["subject"], diagnosis["step"]
    counted = subject["steps"] + (subject["warmup_steps"] or 0)
    assert planted.steps * 0.5 <= counted <= planted.steps * (2.0 if planted.launcher else 1.0), subject
    parts = [step["device_ms"] or 0.0, *(v for v in step["wait_ms"].values() if v is not None)]
    assert sum(parts) == pytest.approx(step["ms"], rel=0.03), said


def assert_plain_speech(planted: Planted, ended: Ended) -> None:
    """Underfed says something, without colour, and no traceback of its own."""
    assert "underfed" in ended.err
    assert ended.err.count("Traceback") == (1 if planted.script == "raises.py" else 0), ended.err[-3000:]
    assert "underfed/" not in "".join(re.findall(r'File "[^"]*"', ended.err)), ended.err[-3000:]
    assert "\x1b" not in ended.err.replace("\x1b]", "")

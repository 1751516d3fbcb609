"""`underfed run` against scripts whose fault is known: bound, first rule, place, silence, and an untouched script."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from expect import PLANTED, Planted
from harness import Ended, bare, fault_lines, missing, watched

pytestmark = pytest.mark.torch

EVERY = [pytest.param(p, id=p.id) for p in PLANTED]


RIGHT_FIRST = [pytest.param(p, id=p.id) for p in PLANTED if p.rules]

SHORT_OUTPUT = {
    "read_from_store", "short_epochs", "log_after_step", "own_profiler", "own_settrace", "own_handlers", "raises",
    "aborts", "exits_3", "few_steps", "no_steps", "no_torch",
}  # fmt: skip
"""Whose output is also compared in the short form; the rest is marked slow."""

NEGATION = re.compile(r"\b(not|no|never|cannot|without|nor|instead)\b|n't\b", re.IGNORECASE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ended, dict[str, Any] | None]]:
    """Hold each watched run, so that several tests can look at it."""
    return {}


def look(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> tuple[Ended, dict[str, Any] | None]:
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


@pytest.mark.parametrize("planted", EVERY)
def test_the_exit_code_is_that_of_the_script(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert ended.code == planted.exit_code, ended.err[-2000:]


@pytest.mark.parametrize("planted", EVERY)
def test_the_bound_is_right(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    if diagnosis is None:
        assert planted.bounds == ("unknown",), ended.err[-2000:]
        return
    assert diagnosis["verdict"]["bound"] in planted.bounds, ended.err[-3000:]


@pytest.mark.parametrize("planted", RIGHT_FIRST)
def test_the_planted_cause_comes_first(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    finding = first(diagnosis)
    assert any(agrees(rule, finding) for rule in planted.rules), ended.err[-3000:]
    assert any(agrees(rule, {"rule": diagnosis["verdict"]["cause"], "name": finding["name"]}) for rule in planted.rules)


@pytest.mark.parametrize("planted", RIGHT_FIRST)
def test_the_first_finding_points_to_the_fault(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    finding = first(diagnosis)
    where = place(finding)
    if where is None and not planted.place:
        return
    assert where is not None, ended.err[-3000:]
    assert where[0] == planted.script
    assert where[1] in fault_lines(planted.script, finding["rule"]), ended.err[-3000:]


@pytest.mark.parametrize("planted", EVERY)
def test_nothing_harmful_is_advised(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    for finding in (diagnosis or {"findings": []})["findings"]:
        if not finding["helps_now"]:
            continue
        assert not planted.quiet, f"alarm where nothing is wrong: {finding}\n{ended.err[-3000:]}"
        assert finding["rule"] not in planted.never, ended.err[-3000:]
        said = " ".join((finding["summary"], finding["fix"]["text"], finding["fix"].get("code") or ""))
        for clause in re.split(r"[.;:,]\s|\n", said):
            if not NEGATION.search(clause):
                for pattern in planted.never_said:
                    assert not re.search(pattern, clause, re.IGNORECASE), f"{said}\n{ended.err[-3000:]}"


@pytest.mark.parametrize("planted", EVERY)
def test_steps_are_optimizer_steps_and_add_up(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    if diagnosis is None or planted.steps is None:
        return
    subject, step = diagnosis["subject"], diagnosis["step"]
    counted = subject["steps"] + (subject["warmup_steps"] or 0)
    assert planted.steps * 0.5 <= counted <= planted.steps * (2.0 if planted.launcher else 1.0), subject
    parts = [step["device_ms"] or 0.0, *(v for v in step["wait_ms"].values() if v is not None)]
    assert sum(parts) == pytest.approx(step["ms"], rel=0.03), ended.err[-3000:]


@pytest.mark.parametrize("planted", EVERY)
def test_underfed_speaks_plainly_and_never_fails_aloud(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert "underfed" in ended.err
    assert ended.err.count("Traceback") == (1 if planted.script == "raises.py" else 0), ended.err[-3000:]
    assert "underfed/" not in "".join(re.findall(r'File "[^"]*"', ended.err)), ended.err[-3000:]
    assert "\x1b" not in ended.err.replace("\x1b]", "")


@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(p, id=p.id, marks=[] if p.id in SHORT_OUTPUT else [pytest.mark.slow])
        for p in PLANTED
        if p.same_output
    ],
)
def test_the_output_is_that_of_the_script(planted: Planted, tmp_path: Path, runs: dict[str, Any]) -> None:
    ended, _ = look(planted, tmp_path, runs)
    alone = tmp_path / "alone"
    alone.mkdir()
    expected = bare(planted, alone)
    assert ended.out == expected.out
    assert ended.code == expected.code

"""The recordings that are kept of the planted scripts, judged as the live runs are: the short form of test_planted.py.

tests/score holds bound, cause and alarms of the same recordings against a committed table; here come the place, the
words of the advice, and the steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("planted_judge")
from expect import PLANTED, Planted
from planted_judge import assert_bound, assert_cause, assert_harmless, assert_place, assert_steps

from underfed.diagnose.run import diagnose
from underfed.diagnosis import to_json
from underfed.recording.read import read

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "score"))
from keep import KEPT, unpack

RECORDED = [p for p in PLANTED if (KEPT / f"{p.id}.json.gz").is_file()]
EVERY = [pytest.param(p, id=p.id) for p in RECORDED]
FAULTY = [pytest.param(p, id=p.id) for p in RECORDED if p.rules]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the diagnosis of each recording."""
    diagnoses = {}
    for planted in RECORDED:
        folder = tmp_path_factory.mktemp(planted.id)
        unpack(KEPT / f"{planted.id}.json.gz", folder)
        diagnoses[planted.id] = json.loads(to_json(diagnose(read(folder), None)))
    return diagnoses


def test_all_but_those_that_fail_are_kept() -> None:
    assert {p.id for p in PLANTED} - {p.id for p in RECORDED} == {p.id for p in PLANTED if p.exit_code}


@pytest.mark.parametrize("planted", EVERY)
def test_bound_advice_and_steps_are_right(planted: Planted, found: dict[str, dict[str, Any]]) -> None:
    diagnosis = found[planted.id]
    for judged in (assert_bound, assert_harmless, assert_steps):
        judged(planted, diagnosis, str(diagnosis["verdict"]))


@pytest.mark.parametrize("planted", FAULTY)
def test_the_planted_cause_comes_first_and_at_its_line(planted: Planted, found: dict[str, dict[str, Any]]) -> None:
    diagnosis = found[planted.id]
    for judged in (assert_cause, assert_place):
        judged(planted, diagnosis, str(diagnosis["verdict"]))

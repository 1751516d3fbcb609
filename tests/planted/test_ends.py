"""Scripts that end early or never begin: their exit code and their output, and no verdict without steps.

No answer here rests on what a run took, so that other tests may run beside. test_planted.py judges the bound of those
that make some steps.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("planted_judge")
from expect import PLANTED, Planted
from harness import bare
from planted_judge import Runs, assert_bound, assert_harmless, assert_plain_speech, look

pytestmark = pytest.mark.torch

#: test_planted.py runs exits_3 in CI.
ENDS = [
    pytest.param(p, id=p.id, marks=[pytest.mark.slow] if p.id == "exits_3" else [])
    for p in PLANTED
    if "unknown" in p.bounds
]
UNKNOWN = [pytest.param(p, id=p.id) for p in PLANTED if p.bounds == ("unknown",)]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return {}


@pytest.mark.parametrize("planted", ENDS)
def test_exit_code_and_output_are_those_of_the_script(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert ended.code == planted.exit_code, ended.err[-2000:]
    alone = tmp_path / "alone"
    alone.mkdir()
    expected = bare(planted, alone)
    assert (ended.code, ended.out) == (expected.code, expected.out)


@pytest.mark.parametrize("planted", UNKNOWN)
def test_no_bound_and_no_advice_is_guessed(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    if diagnosis is None:
        return
    assert_bound(planted, diagnosis, ended.err[-3000:])
    assert_harmless(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", ENDS)
def test_underfed_speaks_plainly_where_there_is_little_to_say(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert_plain_speech(planted, ended)

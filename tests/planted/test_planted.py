"""`underfed run` against scripts whose fault is known: bound, first rule, place, silence, and an untouched script.

CI runs those of LIVE: each bound, each kind of fault, ranks, a framework, a healthy one. The others are `slow`; their
short form is test_kept.py, which judges the recordings of all of them in the same words.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("planted_judge")
from expect import PLANTED, Planted
from harness import bare
from planted_judge import (
    Runs,
    assert_bound,
    assert_cause,
    assert_harmless,
    assert_place,
    assert_plain_speech,
    assert_steps,
    look,
)  # fmt: skip

pytestmark = pytest.mark.torch

LIVE = {
    "read_from_store", "heavy_augment", "short_epochs", "csv_generator",  # data
    "checkpoint_often", "estimate_loss", "tiny_ops", "compile_shapes",  # host
    "list_of_batches", "own_profiler", "own_settrace", "own_handlers",  # compute, and programs with eyes of their own
    "lightning_fit",  # a framework; tests/library trains with others
    "ddp_no_sync",  # ranks; tests/ranks has others
    "exits_3",  # ends early; test_ends.py has the others
}  # fmt: skip
SHORT_OUTPUT = {"own_profiler", "own_settrace", "own_handlers"}
"""Whose output is also compared in the short form; test_losses.py and test_ends.py compare those of more."""


def cases(scripts: list[Planted], short: set[str] = LIVE) -> list[object]:
    """Return them as parameters; those that are not in `short` are slow."""
    return [pytest.param(p, id=p.id, marks=[] if p.id in short else [pytest.mark.slow]) for p in scripts]


EVERY = [p for p in PLANTED if p.bounds != ("unknown",)]  # those that make no steps: test_ends.py
FAULTY = [p for p in EVERY if p.rules]


@pytest.fixture(scope="module")
def runs() -> Runs:
    return {}


def test_the_short_form_has_each_bound_and_is_made_of_scripts() -> None:
    assert {p.id for p in EVERY} >= LIVE >= SHORT_OUTPUT
    assert {bound for p in EVERY if p.id in LIVE for bound in p.bounds} == {b for p in EVERY for b in p.bounds}


@pytest.mark.parametrize("planted", cases(EVERY))
def test_the_exit_code_is_that_of_the_script(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert ended.code == planted.exit_code, ended.err[-2000:]


@pytest.mark.parametrize("planted", cases(EVERY))
def test_the_bound_is_right(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-2000:]
    assert_bound(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", cases(FAULTY))
def test_the_planted_cause_comes_first(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    assert_cause(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", cases(FAULTY))
def test_the_first_finding_points_to_the_fault(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    assert_place(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", cases(EVERY))
def test_nothing_harmful_is_advised(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    assert_harmless(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", cases(EVERY))
def test_steps_are_optimizer_steps_and_add_up(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, diagnosis = look(planted, tmp_path, runs)
    assert diagnosis is not None, ended.err[-3000:]
    assert_steps(planted, diagnosis, ended.err[-3000:])


@pytest.mark.parametrize("planted", cases(EVERY))
def test_underfed_speaks_plainly_and_never_fails_aloud(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, _ = look(planted, tmp_path, runs)
    assert_plain_speech(planted, ended)


@pytest.mark.parametrize("planted", cases([p for p in EVERY if p.same_output], SHORT_OUTPUT))
def test_the_output_is_that_of_the_script(planted: Planted, tmp_path: Path, runs: Runs) -> None:
    ended, _ = look(planted, tmp_path, runs)
    alone = tmp_path / "alone"
    alone.mkdir()
    expected = bare(planted, alone)
    assert ended.out == expected.out
    assert ended.code == expected.code

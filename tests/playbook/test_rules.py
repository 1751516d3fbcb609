"""Each rule on evidence in which it must speak, and on evidence in which it must stay silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels_help import EFFICIENT, EFFICIENT_WIDE, MATRIX
from rule_cases import (
    BROKEN,
    CROWDED_BY_OTHERS,
    FROM_RANKS,
    FROM_RECORDINGS,
    HEALTHY,
    HELD,
    LOOP,
    ROOM,
    SILENT,
    SPEAKS,
    TINY,
    WITH_PLACE,
    WORK,
    computing,
    fed,
    launching,
    spot,
)
from scenes import CPUS, FETCHES, LOADER, busy, evidence

from underfed.diagnose.assemble import findings_of, ranked
from underfed.diagnosis import Finding
from underfed.playbook.evidence import EpochFacts, Evidence
from underfed.playbook.registry import RULES, find


def said(name: str, seen: Evidence) -> Finding | None:
    rule = find(name)
    assert rule is not None
    return rule.check(seen)


def test_every_rule_is_covered() -> None:
    assert {rule.id for rule in RULES} == set(SPEAKS) | FROM_RECORDINGS | FROM_RANKS
    assert {name for name, _, _ in SILENT} == set(SPEAKS)


@pytest.mark.parametrize("name", SPEAKS)
def test_it_speaks(name: str) -> None:
    finding = said(name, SPEAKS[name])
    assert finding is not None
    assert finding.rule == name and finding.summary.endswith(".") and finding.fix.text
    assert finding.evidence or name == "T1"
    assert (finding.where is not None) or name not in WITH_PLACE


@pytest.mark.parametrize(("name", "why", "seen"), SILENT, ids=[f"{name}, {why}" for name, why, _ in SILENT])
def test_it_stays_silent(name: str, why: str, seen: Evidence) -> None:
    finding = said(name, seen)
    assert finding is None, finding


def test_validation_that_keeps_the_gpu_busy_is_a_gain_of_a_compute_bound_run() -> None:
    """25 of 60 ms are validation, in which the device works as in training: without it 35 are left."""
    seen = evidence(
        {"pre": 15.0, "eval": 15.0, "backward": 20.0, "sync": 10.0},
        sections={"pre": {"forward": 1.0}},
        device=busy(58.0),
        spots=(spot("eval", 25.0), spot("forward", 15.0)),
    )
    assert seen.bound == "compute"
    (finding,) = (one for one in ranked(findings_of(seen), seen) if one.rule == "X7")
    assert finding.helps_now and finding.bound == "compute"
    assert finding.gain is not None and finding.gain.expected is not None
    low, high = finding.gain.expected
    assert low <= 60 / 35 <= high + 0.001 and high <= finding.gain.at_most <= 2.5
    idle = replace(seen, spots=(spot("eval", 2.0),))
    assert not [one for one in ranked(findings_of(idle), idle) if one.rule == "X7" and one.bound == "compute"]


@given(st.integers(2_000, 200_000), st.floats(0.3, 4.5))
def test_tiny_operators_without_a_gpu(count: int, each_us: float) -> None:
    """However many and however short, the gain stays above calling them once in fewer and longer pieces costs."""
    step = count * each_us / 1000
    seen = replace(
        evidence(
            {"pre": 0.5 * step, "backward": 0.5 * step},
            sections={"pre": {"forward": 1.0}},
            on_gpu=False,
            spots=(spot("forward", 0.5 * step), spot("backward", 0.5 * step)),
        ),
        operators=replace(TINY.operators, count=float(count), wall_ms=1.2 * step),
    )
    finding = said("T15", seen)
    assert finding is not None and finding.gain is not None and finding.gain.expected is not None
    low, high = finding.gain.expected
    assert 1.0 <= low <= high <= finding.gain.at_most
    assert f"{count:,}" in finding.summary and finding.where == "train.py:50"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_it_stays_silent_on_a_healthy_run(rule: Any) -> None:
    assert rule.check(HEALTHY) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_it_bears_evidence_that_holds_nothing(rule: Any) -> None:
    finding = rule.check(Evidence(kind="run", on_gpu=True))
    assert finding is None or rule.id == "T1"


@pytest.mark.parametrize("name", SPEAKS)
def test_gains_are_ordered_and_the_bound_is_at_least_one(name: str) -> None:
    for finding in findings_of(SPEAKS[name]):
        if finding.gain is not None:
            low, high = finding.gain.expected or (1.0, 1.0)
            assert 1.0 <= low <= high <= finding.gain.at_most


def test_workers_that_queue_for_a_cpu_are_told_apart_from_slow_storage() -> None:
    assert said("T8", CROWDED_BY_OTHERS) is not None and said("X1", CROWDED_BY_OTHERS) is not None


def test_one_cpu_and_no_workers_is_not_a_case_for_workers() -> None:
    seen = fed(0, cpus=replace(CPUS, usable=1.0))
    assert said("T4", seen) is None and said("T8", seen) is not None


def test_inputs_that_rule_flash_attention_out_are_told_apart_by_their_width() -> None:
    said_of = {name: said("X17", computing({name: 4.0, MATRIX: 5.0})) for name in (EFFICIENT, EFFICIENT_WIDE)}
    assert all(said_of.values())
    assert "32 bits" in said_of[EFFICIENT_WIDE].summary and "mask" in said_of[EFFICIENT].summary
    assert said_of[EFFICIENT_WIDE].note is not None and said_of[EFFICIENT].note is None


def test_the_batch_that_would_fit_is_said_where_the_batch_is_known() -> None:
    seen = launching(torch={"memory": {"peak": 14 << 30, "total": 140 << 30}}, loader=replace(LOADER, batch=8))
    found = said("T18", seen)
    assert found is not None and "towards 72 (now 8)" in found.fix.text


def test_a_stall_says_how_much_of_it_the_gpu_idles() -> None:
    copying = evidence(
        {**LOOP, "post": 90.0},
        sections={**WORK, "post": {"checkpoint": 1.0}},
        device=busy(40.0, copy=30.0),
        spots=(spot("checkpoint", 90.0),),
    )
    found, plain = said("X6", copying), said("X6", SPEAKS["X6"])
    assert found is not None and plain is not None
    assert "90 % of the step on the training thread (the GPU idles for 60 %" in found.summary
    assert "idles" not in plain.summary


def test_a_stall_that_comes_now_and_then_leaves_the_usual_step() -> None:
    rare = replace(SPEAKS["X6"], usual_ms=11.0)
    often = said("X6", SPEAKS["X6"])
    found = said("X6", rare)
    assert found is not None and often is not None
    assert found.gain is not None and found.gain.expected is not None
    assert found.gain.expected[0] <= rare.step_ms / 11.0 <= found.gain.expected[1]


def test_a_median_that_bursts_of_input_make_small_is_not_what_a_stall_leaves() -> None:
    bursts = evidence(
        {**LOOP, "data": 200.0, "post": 20.0},
        sections={**WORK, "post": {"logging": 1.0}},
        device=busy(9.0),
        spots=(spot("logging", 20.0),),
        usual_ms=11.0,
    )
    found = said("X8", bursts)
    assert found is not None and found.gain is not None and found.gain.expected is not None
    assert found.gain.at_most < 1.3


def test_breaks_whose_cost_is_not_known_are_listed_only() -> None:
    seen = evidence(LOOP, sections=WORK, on_gpu=False, torch={"dynamo": BROKEN})
    found = said("X20", seen)
    assert found is not None and not found.helps_now and found.gain is None


def test_a_power_limit_below_the_cards_own_is_named() -> None:
    gpu = replace(HELD, held={"power cap": 0.8}, limit_w=450.0)
    found = said("U23", computing({MATRIX: 9.0}, gpu=gpu))
    assert found is not None and "450 W instead of 700 W" in found.summary


def test_workers_that_the_memory_has_no_room_for_are_not_advised() -> None:
    fetch = {"wall": 80.0, "cpu": 78.0}
    full = said("T4", fed(2, fetch=fetch, memory=replace(ROOM, used=57.5e9)))
    roomy = said("T4", fed(2, fetch=fetch, memory=ROOM))
    assert roomy is not None and "num_workers=8" in roomy.fix.text
    assert full is None or "num_workers=2" not in full.fix.text
    some = said("T4", fed(2, fetch=fetch, memory=replace(ROOM, used=0.9 * 64e9 - 5e9)))
    assert some is not None and "num_workers=4" in some.fix.text


def test_cpus_that_others_keep_busy_widen_what_workers_may_bring() -> None:
    alone, beside = (said("T4", fed(0, cpus=replace(CPUS, others=others))) for others in (0.0, 7.5))
    assert alone is not None and beside is not None and alone.gain is not None and beside.gain is not None
    assert alone.gain.expected is not None and beside.gain.expected is not None
    assert beside.gain.expected[0] < alone.gain.expected[0]
    assert beside.gain.at_most == alone.gain.at_most


@pytest.mark.parametrize(("memory", "word"), [({"kills": 2}, "killed"), ({"growth": 2e9}, "grows")])
def test_memory_that_runs_out_is_said_as_what_was_seen(memory: dict[str, Any], word: str) -> None:
    found = said("U9", fed(4, memory=replace(ROOM, **memory)))
    assert found is not None and word in found.summary and not found.helps_now


def test_many_cpus_and_no_workers_is_one_however_dear_the_work() -> None:
    seen = fed(0, 500.0, fetch={"wall": 500.0, "cpu": 490.0, "process_cpu": 490.0})
    assert said("T4", seen) is not None and said("T8", seen) is None


NAMED_FIRST = ("P3", "T10", "U23", "X15", "X16", "X17", "X18", "X19")
FIRST = (
    *NAMED_FIRST,
    "T4",
    "T5",
    "T6",
    "T7",
    "T8",
    "U8",
    "X2",
    "X3",
    "X5",
    "X6",
    "X7",
    "X8",
    "X9",
    "X10",
    "X12",
    "T12",
    "T15",
)


@pytest.mark.parametrize("name", FIRST)
def test_the_planted_cause_is_ranked_first(name: str) -> None:
    findings = ranked(findings_of(SPEAKS[name]), SPEAKS[name])
    assert findings[0].rule == name and findings[0].helps_now, [finding.rule for finding in findings]


@settings(max_examples=500, deadline=None)
@given(
    workers=st.integers(0, 64),
    wall=st.floats(0.1, 5000),
    share=st.floats(0, 1),
    wait=st.floats(0, 2000),
    cpus=st.floats(0.5, 64),
    queued=st.one_of(st.none(), st.floats(0, 1)),
    persistent=st.booleans(),
    border=st.one_of(st.none(), st.tuples(st.floats(1, 200), st.floats(0, 500), st.floats(0, 2000))),
    span=st.floats(1, 1e6),
    on_gpu=st.booleans(),
)
def test_advice_never_contradicts_itself(
    workers: int,
    wall: float,
    share: float,
    wait: float,
    cpus: float,
    queued: float | None,
    persistent: bool,
    border: tuple[float, float, float] | None,
    span: float,
    on_gpu: bool,
) -> None:
    seen = evidence(
        {**LOOP, "data": wait},
        sections=WORK,
        device=busy(9.0) if on_gpu else None,
        on_gpu=on_gpu,
        loader=replace(LOADER, workers=workers, persistent=persistent),
        fetches=replace(
            FETCHES,
            queued=None if queued is None else queued * (1 - share) * wall,
            wall=wall,
            cpu=share * wall,
            process_cpu=share * wall,
            wall_median=wall,
            wall_p95=wall,
            span_ms=span,
        ),
        cpus=replace(CPUS, usable=cpus),
        epochs=EpochFacts(count=9, steps=border[0], start_ms=border[1], first_wait_ms=border[2]) if border else None,
    )
    findings = ranked(findings_of(seen), seen)
    helping = {finding.rule for finding in findings if finding.helps_now}
    assert not {"T4", "T8"} <= helping, "more workers, and more workers cannot help"
    assert not {"T4", "X1"} <= helping, "more workers, and fewer"
    assert not {"U8", "T8"} <= helping, "fetches wait, and fetches compute"
    assert not {"T4", "T5"} <= helping, "T5 says not to add workers"
    if seen.bound != "data":
        assert not helping & {"T4", "T5", "T7", "T8", "U8", "X1", "X2"}

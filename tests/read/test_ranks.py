"""Many ranks: who is late, by how much and where, against a simulation that knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from read_help import World, simulate, write

from underfed.timeline.ranks import skew_of
from underfed.trace import trace_facts
from underfed.trace.many import read_many
from underfed.trace.meaning import diagnosis_of


def facts_of(paths):
    return [trace_facts(path) for path in paths]


def diagnose(paths, step_ms=None):
    found, _ = read_many(paths, workers=1)
    return diagnosis_of([facts for _, facts in found], [str(path) for path, _ in found], step_ms)


def expected(run, skip=1):
    """Mean rank's waiting over all collectives but the first, and what each rank causes, in ns."""
    total, caused = 0, {}
    for waits, last in list(zip(run.waits, run.last, strict=True))[skip:]:
        mean = sum(waits) // (len(waits) - 1)
        total += mean
        caused[last] = caused.get(last, 0) + mean
    return total, caused


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        World,
        ranks=st.integers(2, 6),
        steps=st.integers(3, 6),
        parts=st.integers(1, 3),
        compute=st.integers(10_000, 3_000_000),
        transfer=st.integers(1_000, 500_000),
        slow=st.dictionaries(st.integers(0, 1), st.integers(0, 2_000_000)),
        jitter=st.sampled_from([0, 800_000]),
        clock=st.sampled_from([0, 5_000_000_000]),
        seed=st.integers(0, 1000),
        first_late=st.sampled_from([0, 9_000_000]),
    ),
    st.booleans(),
)
def test_waiting_of_every_rank_equals_the_simulation(tmp_path_factory, world, noted):
    run = simulate(world)
    paths = write(tmp_path_factory.mktemp("ranks"), world, run, noted=noted)
    facts = facts_of(paths)
    skew = skew_of([one.log for one in facts], list(range(world.ranks)))
    skip = world.parts * max(one.warmup_steps for one in facts) or 1
    total, caused = expected(run, skip)
    assert skew.matched == len(run.waits) - skip
    assert skew.unmatched == 0
    assert skew.caused_ns == total
    for one in skew.ranks:
        assert one.wait_ns == sum(waits[one.rank] for waits in run.waits[skip:])
        assert one.transfer_ns == world.transfer * skew.matched
        assert one.caused_ns == caused.get(one.rank, 0)
        assert one.last_in == run.last[skip:].count(one.rank)


def test_one_slow_card_is_named_with_its_reason_and_its_price(tmp_path):
    world = World(ranks=8, slow={5: 1_500_000}, clock=40_000_000, seed=3)
    run = simulate(world)
    found = diagnose(write(tmp_path, world, run), run.step_ns / 1e6)
    cured = simulate(replace(world, slow={}))
    finding = next(one for one in found.findings if one.rule == "X13")
    assert finding.helps_now
    assert "rank 5" in found.verdict.text
    assert "its kernels take longer" in found.verdict.text
    assert found.verdict.cause == "X13"
    gain = run.step_ns / cured.step_ns
    assert finding.gain.at_most >= gain - 0.001
    assert finding.gain.expected[0] - 0.01 <= gain <= finding.gain.expected[1] + 0.01
    assert any("clocks" in limit for limit in found.limits)


def test_a_slow_host_on_one_rank_makes_the_run_host_bound_there(tmp_path):
    world = World(ranks=4, slow={2: 9_000_000}, slow_host=True)
    run = simulate(world)
    found = diagnose(write(tmp_path, world, run), run.step_ns / 1e6)
    assert found.verdict.bound == "host"
    assert "rank 2" in found.verdict.text
    assert "other 3 ranks" in found.verdict.text


def test_ranks_that_take_turns_are_said_to(tmp_path):
    world = World(ranks=8, steps=24, parts=1, jitter=6_000_000, seed=1)
    run = simulate(world)
    found = diagnose(write(tmp_path, world, run), run.step_ns / 1e6)
    finding = next(one for one in found.findings if one.rule == "X13")
    assert "take turns" in finding.summary
    assert "which the others wait for" not in found.verdict.text
    assert finding.gain.expected is None


def test_equal_ranks_wait_for_nobody_and_long_transfers_are_not_blamed_on_a_rank(tmp_path):
    world = World(ranks=4, compute=1_000_000, transfer=3_000_000)
    run = simulate(world)
    found = diagnose(write(tmp_path, world, run), run.step_ns / 1e6)
    assert found.verdict.bound == "comms"
    assert found.verdict.cause == "T23"
    assert not [one for one in found.findings if one.rule == "X13"]
    finding = next(one for one in found.findings if one.rule == "T23")
    assert finding.gain.at_most >= run.step_ns / (run.step_ns - 2 * 3_000_000) - 0.01


def test_one_rank_alone_cannot_tell_waiting_from_transfer(tmp_path):
    world = World(ranks=4, slow={1: 3_000_000})
    run = simulate(world)
    paths = write(tmp_path, world, run)
    found = diagnose(paths[:1], run.step_ns / 1e6)
    assert any("one rank of 4" in limit for limit in found.limits)
    assert not [one for one in found.findings if one.rule == "X13"]
    some = diagnose([paths[0], paths[2]], run.step_ns / 1e6)
    assert any("2 of 4 ranks" in limit for limit in some.limits)


def test_a_slow_rank_costs_nothing_where_computing_covers_the_waiting(tmp_path):
    """Two ranks: one comes late to an all-reduce that the other spends computing."""
    world = World(ranks=2, slow={1: 3_000_000}, parts=1)
    run = simulate(world)
    covering = [
        (f"c{number}", start, end, step)
        for number, (name, start, end, step) in enumerate(run.kernels[0])
        if name.startswith("comm")
    ]
    run.kernels[0] += covering
    facts = facts_of(write(tmp_path, world, run))
    skew = skew_of([one.log for one in facts], [0, 1])
    assert skew.matched == world.steps - 1
    assert skew.caused_ns == 0
    assert skew.ranks[0].wait_ns == 0


def test_traces_of_different_runs_are_not_held_against_each_other(tmp_path):
    a, b = World(ranks=2, seed=1), World(ranks=2, seed=2, compute=7_000_000, parts=1)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = write(tmp_path / "a", a, simulate(a), noted=False)[0]
    two = write(tmp_path / "b", b, simulate(b), noted=False)[1]
    facts = facts_of([one, two])
    skew = skew_of([facts[0].log, facts[1].log], [0, 1])
    assert skew is None or skew.unmatched > skew.matched


def test_a_rank_that_has_several_traces_counts_once(tmp_path):
    world = World(ranks=3, slow={1: 3_000_000})
    run = simulate(world)
    (tmp_path / "again").mkdir()
    paths = write(tmp_path, world, run, noted=False)
    later = write(tmp_path / "again", world, simulate(replace(world, seed=5, compute=9_000_000)), noted=False)
    once, twice = diagnose(paths, run.step_ns / 1e6), diagnose([*paths, *later], run.step_ns / 1e6)
    assert twice.subject.ranks == 3
    assert twice.verdict.text == once.verdict.text
    assert any("first of each" in limit for limit in twice.limits)


def test_groups_are_held_apart(tmp_path):
    """The same sequence numbers in two groups of two ranks each."""
    world = World(ranks=2)
    logs = []
    for group in ("a", "b"):
        (tmp_path / group).mkdir()
        world = replace(world, slow={0: 2_000_000} if group == "a" else {1: 1_000_000})
        for path in write(tmp_path / group, world, simulate(world)):
            facts = trace_facts(path)
            kind, _, ranks = facts.log.keys[0].split("\0")
            logs.append(
                type(facts.log)(
                    **{
                        **{name: getattr(facts.log, name) for name in facts.log.__struct_fields__},
                        "keys": ["\0".join((kind, group, ranks))],
                    }
                )
            )
    skew = skew_of(logs, [0, 1, 2, 3])
    assert {one.group: one.rank for one in skew.collectives} == {"a": 0, "b": 3}
    assert [one.wait_ns > 0 for one in skew.ranks] == [False, True, True, False]


@pytest.mark.slow
def test_512_ranks_on_few_processes(tmp_path):
    world = World(ranks=512, steps=12, parts=4, slow={300: 1_000_000}, clock=20_000_000, seed=9)
    run = simulate(world)
    paths = write(tmp_path, world, run)
    found, refused = read_many(paths, workers=2)
    assert not refused
    diagnosis = diagnosis_of([facts for _, facts in found], [str(path) for path, _ in found], run.step_ns / 1e6)
    assert diagnosis.subject.ranks == 512
    assert "rank 300" in diagnosis.verdict.text
    skew = skew_of([facts.log for _, facts in found], list(range(512)))
    assert skew.late == [300]
    assert skew.caused_ns == expected(run)[0]

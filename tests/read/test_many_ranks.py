"""`underfed read` on ranks made of one rank's real trace: lateness and transfer that are known come back."""

from __future__ import annotations

import pytest
from many_ranks import spread
from read_help import SHARED

from underfed.timeline.ranks import skew_of
from underfed.trace import trace_facts
from underfed.trace.meaning import diagnosis_of

SOURCE = SHARED / "zoo" / "ckpt_stall" / "after" / "trace.json.gz"
MS = 1_000_000
#: Kineto writes us with three digits, so begin and end of a kernel are each off by up to 1 ns; 10 ns leave room.
OFF_NS = 10

pytestmark = pytest.mark.skipif(not SOURCE.exists(), reason="the shared traces are not here")


@pytest.mark.parametrize(
    ("late", "transfer"),
    [([0, 0, 9 * MS, 0], 1 * MS), ([3 * MS, 0], 5 * MS), ([0, 2 * MS, 1 * MS, 12 * MS], MS // 2)],
)
def test_lateness_and_transfer_come_back(tmp_path, late, transfer):
    clocks = [17 * MS * rank for rank in range(len(late))]
    paths, count = spread(SOURCE, tmp_path, late=late, transfer=transfer, clocks=clocks)
    facts = [trace_facts(path) for path in paths]
    skew = skew_of([one.log for one in facts], list(range(len(late))))
    assert skew.unmatched == 0
    assert 0 < skew.matched < count, "the first all-reduces belong to the opening or the warm-up"
    worst = late.index(max(late))
    for one in skew.ranks:
        assert abs(one.wait_ns - skew.matched * (max(late) - late[one.rank])) <= skew.matched * OFF_NS
        assert abs(one.transfer_ns - skew.matched * transfer) <= skew.matched * OFF_NS
        assert one.last_in == (skew.matched if one.rank == worst else 0)
    assert skew.late == [worst]
    second = sorted(late)[-2]
    mean = (max(late) * (len(late) - 1) - (sum(late) - max(late))) // (len(late) - 1)
    saved = skew.matched * min(max(late) - second, mean)
    assert abs(skew.saved_ns - saved) <= skew.matched * OFF_NS
    # All clocks tell the same tale once lined up by the ends of all-reduces.
    assert abs(skew.clocks_ns - clocks[-1]) <= OFF_NS
    found = diagnosis_of(facts, [str(path) for path in paths])
    finding = next(one for one in found.findings if one.rule == "X13")
    assert f"for rank {worst}" in finding.summary


def test_equal_ranks_show_the_transfer_and_nobody_late(tmp_path):
    paths, _ = spread(SOURCE, tmp_path, late=[0] * 4, transfer=60 * MS, clocks=[0, 5 * MS, 0, 9 * MS])
    facts = [trace_facts(path) for path in paths]
    skew = skew_of([one.log for one in facts], list(range(4)))
    assert skew.caused_ns <= skew.matched * OFF_NS
    found = diagnosis_of(facts, [str(path) for path in paths])
    assert not [one for one in found.findings if one.rule == "X13"]
    assert next(one for one in found.findings if one.rule == "T23").summary
    assert "which the others wait for" not in found.verdict.text

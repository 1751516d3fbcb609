"""Ranks of a run held against each other: against passes whose transfer and lateness are known by construction."""

from __future__ import annotations

import random

import pytest

from underfed.diagnose.skew import skew_of_run
from underfed.playbook.evidence import RankFacts

MS = 1_000_000


def passes(extra: dict[int, list[float]], transfer: float, seed: int = 0) -> dict[int, dict[tuple[int, int], int]]:
    """Exposed ns by rank, model and pass: each rank comes `extra` ms late, and all leave when the data is through."""
    count = len(next(iter(extra.values())))
    rng = random.Random(seed)
    found: dict[int, dict[tuple[int, int], int]] = {rank: {} for rank in extra}
    for at in range(count):
        came = {rank: late[at] + 0.01 * rng.random() for rank, late in extra.items()}
        end = max(came.values()) + transfer
        for rank, time in came.items():
            found[rank][0, at + 3] = round((end - time) * MS)
    return found


def facts(own: dict[int, float], data: dict[int, float] | None = None) -> list[RankFacts]:
    return [RankFacts(rank, 20.0, value, (data or {}).get(rank, 0.0), 0.0) for rank, value in own.items()]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("transfer", [0.5, 6.0])
def test_one_late_rank_gives_its_lateness_and_the_transfer_back(ranks: int, transfer: float) -> None:
    extra = {rank: [5.0 if rank == 1 else 0.0] * 10 for rank in range(ranks)}
    own = {rank: 9.0 if rank == 1 else 4.0 for rank in range(ranks)}
    found = skew_of_run(passes(extra, transfer), facts(own, {1: 5.0}), ranks, 1.0)
    assert found is not None
    assert found.late == (1,)
    assert found.waiting == pytest.approx(5.0, abs=0.02)
    assert found.moving == pytest.approx(transfer, abs=0.02)
    assert found.saved == pytest.approx(5.0, abs=0.02)
    assert found.why == "it waits longer for input"
    assert found.why_ms == pytest.approx(5.0)


def test_several_exchanges_a_step_count_each() -> None:
    extra = {0: [0.0] * 10, 1: [2.0] * 10}
    found = skew_of_run(passes(extra, 1.0), facts({0: 4.0, 1: 12.0}), 2, 4.0)
    assert found is not None
    assert found.waiting == pytest.approx(8.0, abs=0.08)
    assert found.moving == pytest.approx(4.0, abs=0.08)


def test_equal_ranks_wait_for_nobody() -> None:
    found = skew_of_run(passes({rank: [0.0] * 10 for rank in range(4)}, 7.0), facts(dict.fromkeys(range(4), 4.0)), 4, 1)
    assert found is not None
    assert found.late == ()
    assert found.waiting < 0.02
    assert found.moving == pytest.approx(7.0, abs=0.02)


def test_ranks_that_take_turns_are_not_called_late() -> None:
    extra = {0: [6.0, 0.0] * 5, 1: [0.0, 6.0] * 5}
    found = skew_of_run(passes(extra, 1.0), facts({0: 7.0, 1: 7.1}), 2, 1.0)
    assert found is not None
    assert found.late == ()
    assert found.waiting == pytest.approx(3.0, abs=0.05), "each rank waits in every second pass"
    assert found.moving == pytest.approx(1.0, abs=0.05)
    assert found.share == pytest.approx(0.5, abs=0.1)


def test_few_passes_name_nobody_whose_own_work_does_not_say_so() -> None:
    extra = {0: [0.0] * 6, 1: [3.0] * 6}
    found = skew_of_run(passes(extra, 1.0), facts({0: 4.0, 1: 4.1}), 2, 1.0)
    assert found is not None
    assert found.late == ()
    assert found.share == pytest.approx(1.0)


def test_ranks_that_were_not_seen_leave_it_unsaid() -> None:
    timed = passes({0: [0.0] * 10, 1: [3.0] * 10}, 1.0)
    both = facts({0: 4.0, 1: 7.0})
    assert skew_of_run(timed, both, 4, 1.0) is None
    assert skew_of_run({0: timed[0]}, both, 2, 1.0) is None
    assert skew_of_run(timed, both[:1], 1, 1.0) is None
    other = {0: timed[0], 1: {(0, at + 100): ns for (_, at), ns in timed[1].items()}}
    assert skew_of_run(other, both, 2, 1.0) is None, "no pass in common"

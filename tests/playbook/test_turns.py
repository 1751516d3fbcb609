"""Ranks that take turns beside an exchange that moves data: what comes first, and what is only the exchange's end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rule_cases import WORK

from underfed.diagnose.assemble import assemble, findings_of, ranked
from underfed.diagnosis import Finding, Step, Subject, Waits
from underfed.playbook.evidence import Evidence, ExchangeFacts, SkewFacts

from scenes import evidence  # isort: skip


def turns(*, waiting: float, moving: float) -> Evidence:
    """Two ranks with a step of 20 ms, of which 14 are the backward pass and the exchange in it."""
    exchange = ExchangeFacts(
        total=waiting + moving,
        exposed=waiting + moving,
        times=1.0,
        passes=1.0,
        readings=20,
        bytes=6_000_000,
        buckets=(6_000_000,),
        find_unused=False,
        view=False,
    )
    skew = SkewFacts(
        ranks=2,
        late=(),
        waiting=waiting,
        longest=1.2 * waiting,
        moving=moving,
        saved=0.0,
        device=0.0,
        share=0.55,
        where="the gradient exchange",
    )
    loop = {"pre": 5.0, "backward": 14.0, "optimizer": 1.0}
    seen = evidence(loop, sections=WORK, on_gpu=False, exchange=exchange)
    return replace(seen, kind="run", skew=skew, bound="comms")


def helping(seen: Evidence) -> dict[str, Finding]:
    return {one.rule: one for one in ranked(findings_of(seen), seen) if one.helps_now and one.bound == "comms"}


@pytest.mark.parametrize(
    ("waiting", "moving", "rules"),
    [
        (4.0, 10.0, ["T23"]),  # what looks like waiting is how far apart the exchange ends
        (4.0, 6.0, ["T23", "X13"]),
        (6.0, 3.0, ["X13", "T23"]),
        (8.0, 0.1, ["X13"]),
        (2.0, 0.1, []),  # chance
    ],
)
def test_the_larger_part_of_an_exchange_comes_first(waiting: float, moving: float, rules: list[str]) -> None:
    assert list(helping(turns(waiting=waiting, moving=moving))) == rules


def test_equal_work_gains_no_more_than_the_rank_waits_that_waits_longest() -> None:
    gain = helping(turns(waiting=5.0, moving=1.0))["X13"].gain
    assert gain is not None and gain.expected is None
    assert gain.at_most == pytest.approx(20 / 14, abs=1e-3)


def accumulating(exposed: float, *, passes: float = 4.0) -> Evidence:
    """One rank's view of a step of 20 ms, 14 of them in backward passes that all exchange."""
    exchange = replace(turns(waiting=0.0, moving=exposed).exchange, times=passes, passes=passes)
    seen = replace(turns(waiting=0.0, moving=exposed), exchange=exchange, skew=None, bound="compute", steps=50)
    compute = 20.0 - exposed
    step = Step(
        ms=20.0,
        device_ms=compute,
        device_share=compute / 20,
        compute_ms=compute,
        exposed_comms_ms=exposed,
        wait_ms=Waits(**{**dict.fromkeys(seen.wait_ms, 0.0), "comms": exposed}),
    )
    return replace(seen, step=step)


def test_a_needless_exchange_is_advised_on_beside_computing_that_takes_longer() -> None:
    found = assemble(accumulating(6.0), Subject(kind="run", paths=["x"]))
    assert found.verdict.bound == "compute" and found.verdict.cause is None
    assert [one.rule for one in found.findings if one.helps_now] == ["T23"]
    assert "well fed" not in found.verdict.text and "exchange" in found.verdict.text


@pytest.mark.parametrize("seen", [accumulating(1.5), accumulating(6.0, passes=1.0)])
def test_little_of_it_or_one_that_has_to_be_is_not(seen: Evidence) -> None:
    found = assemble(seen, Subject(kind="run", paths=["x"]))
    assert not [one.rule for one in found.findings if one.helps_now]
    assert "Only less or faster computing" in found.verdict.text

"""Gains of stalls and syncs against a simulated GPU loop: run, predict from what the run shows, mend, run again."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import cache

import pytest
from loop_sim import Loop, LoopSeen, run_loop
from scenes import busy, evidence

from underfed.diagnosis import Gain
from underfed.playbook.evidence import Evidence, Spot, Sync
from underfed.playbook.registry import find

DRAWS = 150
KINDS = {"X5": None, "X6": "checkpoint", "X7": "eval", "X8": "logging", "X9": "stall"}


def draw(rng: random.Random, *, syncs: bool) -> Loop:
    kernels = rng.randint(50, 400)
    launch, work = (math.exp(rng.uniform(math.log(0.004), math.log(0.1))) for _ in range(2))
    loop = Loop(kernels, launch, work)
    if syncs:
        return replace(loop, syncs=rng.choice([1, 4, 20, 50]))
    return replace(loop, every=rng.choice([1, 5, 20]), stall=kernels * max(launch, work) * rng.uniform(0.1, 30))


def seen_by_the_agent(seen: LoopSeen, kind: str | None, syncs: int) -> Evidence:
    regions = {"pre": 0.4 * seen.launching, "backward": 0.5 * seen.launching, "optimizer": 0.1 * seen.launching}
    sections = {"pre": {"forward": 1.0}, "mid": {"optimizer": 1.0}}
    spots: tuple[Spot, ...] = ()
    if kind is None:
        regions["sync"] = seen.synced
    else:
        region = "eval" if kind == "eval" else "post"
        regions[region] = seen.stalled
        sections["post"] = {kind: 1.0}
        spots = (Spot(kind, "train.py:50", "lib.py:1", seen.stalled, 50),)
    return evidence(
        regions,
        sections=sections,
        device=busy(min(seen.device, seen.step), sync_share=0.5),
        spots=spots,
        syncs=(Sync("item", "train.py:41", seen.synced, float(syncs)),) if syncs else (),
    )


@cache
def scored(name: str) -> list[tuple[float, Gain]]:
    rng = random.Random(name)
    rule = find(name)
    assert rule is not None
    found = []
    for _ in range(DRAWS):
        loop = draw(rng, syncs=name == "X5")
        before = run_loop(loop)
        finding = rule.check(seen_by_the_agent(before, KINDS[name], loop.syncs))
        if finding is not None and finding.gain is not None:
            after = run_loop(replace(loop, syncs=0, every=0))
            found.append((before.step / after.step, finding.gain))
    return found


@pytest.mark.parametrize("name", KINDS)
def test_the_rule_speaks_in_enough_draws_to_be_judged(name: str) -> None:
    assert len(scored(name)) >= DRAWS // 5


@pytest.mark.parametrize("name", KINDS)
def test_the_bound_on_the_gain_holds(name: str) -> None:
    pairs = [(true, gain.at_most) for true, gain in scored(name)]
    assert sum(true <= most * 1.002 for true, most in pairs) >= 0.95 * len(pairs), [p for p in pairs if p[0] > p[1]]


@pytest.mark.parametrize("name", KINDS)
def test_the_expected_range_holds_the_gain(name: str) -> None:
    ranges = [(true, *gain.expected) for true, gain in scored(name) if gain.expected]
    inside = [low * 0.97 <= true <= high * 1.03 for true, low, high in ranges]
    assert sum(inside) >= 0.85 * len(ranges), [r for r, good in zip(ranges, inside, strict=True) if not good]


def test_the_simulation_agrees_with_arithmetic() -> None:
    free = Loop(100, 0.01, 0.02)
    assert run_loop(free).step == pytest.approx(2.0, rel=0.01)
    assert run_loop(Loop(100, 0.02, 0.01)).step == pytest.approx(2.0, rel=0.01)
    # With a sync behind every kernel host and device take turns.
    assert run_loop(replace(free, syncs=100)).step == pytest.approx(3.0, rel=0.01)
    stalls = run_loop(replace(free, every=10, stall=50.0))
    assert stalls.step == pytest.approx(2.0 + 5.0, rel=0.01)

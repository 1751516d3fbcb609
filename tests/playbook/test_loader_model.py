"""Gains of the loader's rules against a simulated loader: run, predict from what the run shows, mend, run again."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, median

import pytest
from loader_sim import Setup, simulate
from scenes import fed_by

from underfed.diagnosis import Finding
from underfed.playbook.registry import RULES, find

Fetch = Callable[[random.Random], tuple[float, float]]
DRAWS = 80
#: A run of some hundred steps is itself known to about this.
NOISE = 0.03


def spread(mean: float, variation: float) -> Callable[[random.Random], float]:
    sigma = math.sqrt(math.log(1 + variation**2))
    middle = math.log(mean) - sigma**2 / 2
    return lambda rng: rng.lognormvariate(middle, sigma)


def computing(mean: float, variation: float) -> Fetch:
    draw = spread(mean, variation)
    return lambda rng: (draw(rng), 0.02 * mean)


def waiting(mean: float, variation: float) -> Fetch:
    draw = spread(mean, variation)
    return lambda rng: (0.05 * mean, draw(rng))


def bursty(mean: float, slow: float, often: float) -> Fetch:
    return lambda rng: (0.05 * mean, mean * (slow if rng.random() < often else 1.0) * rng.uniform(0.9, 1.1))


def log_uniform(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def few_workers(rng: random.Random) -> Setup:
    kind = rng.choice([computing, waiting])
    return Setup(
        workers=rng.choice([0, 0, 1, 2, 4]),
        fetch=kind(log_uniform(rng, 3, 200), rng.uniform(0.02, 0.6)),
        loop=log_uniform(rng, 3, 100),
        cpus=float(rng.choice([2, 4, 8, 16])),
        epoch=150,
        loop_computes=rng.random() < 0.3,
    )


def short_epochs(rng: random.Random) -> Setup:
    kind = rng.choice([computing, waiting])
    return Setup(
        workers=rng.choice([1, 2, 4, 8]),
        fetch=kind(log_uniform(rng, 2, 60), rng.uniform(0.02, 0.4)),
        loop=log_uniform(rng, 3, 60),
        cpus=float(rng.choice([4, 8, 16])),
        epoch=rng.choice([4, 8, 16, 40]),
        epochs=12,
        start=rng.uniform(1, 10),
        boot=rng.uniform(20, 400),
        loop_computes=rng.random() < 0.3,
    )


def rare_slow_fetches(rng: random.Random) -> Setup:
    mean, workers = log_uniform(rng, 5, 60), rng.choice([2, 4, 8])
    slow, often = rng.uniform(4, 15), rng.uniform(0.02, 0.12)
    loop = mean * (1 + often * (slow - 1)) / workers * rng.uniform(1.0, 1.8)
    return Setup(workers=workers, fetch=bursty(mean, slow, often), loop=loop, cpus=16.0, epoch=400)


def full_cpus(rng: random.Random) -> Setup:
    cpus = rng.choice([1, 2, 4, 8])
    return Setup(
        workers=rng.choice([cpus, 2 * cpus]),
        fetch=computing(log_uniform(rng, 10, 200), rng.uniform(0.05, 0.5)),
        loop=log_uniform(rng, 2, 30),
        cpus=float(cpus),
        epoch=200,
        loop_computes=rng.random() < 0.4,
    )


def slow_store(rng: random.Random) -> Setup:
    return Setup(
        workers=rng.choice([0, 1, 2, 4, 8]),
        fetch=waiting(log_uniform(rng, 10, 200), rng.uniform(0.05, 0.5)),
        loop=log_uniform(rng, 2, 30),
        cpus=float(rng.choice([2, 8])),
        epoch=200,
        loop_computes=rng.random() < 0.4,
    )


def advised_workers(setup: Setup, finding: Finding) -> Setup:
    wanted = re.search(r"num_workers=(\d+)", finding.fix.text)
    assert wanted is not None
    return replace(setup, workers=int(wanted[1]), epoch=300)


def scaled(setup: Setup, compute: float, wait: float) -> Setup:
    def fetch(rng: random.Random) -> tuple[float, float]:
        one, other = setup.fetch(rng)
        return compute * one, wait * other

    return replace(setup, fetch=fetch)


@dataclass(frozen=True)
class Case:
    rule: str
    draw: Callable[[random.Random], Setup]
    mend: Callable[[Setup, Finding], Setup]
    inside: float
    """Share of the draws whose true gain must lie in the expected range."""


CASES = {
    "T4": Case("T4", few_workers, advised_workers, 0.9),
    "T5": Case("T5", short_epochs, lambda setup, _: replace(setup, persistent=True), 0.9),
    "T7": Case("T7", rare_slow_fetches, lambda setup, _: replace(setup, prefetch=2 * setup.prefetch), 0.85),
    "T8, work halved": Case("T8", full_cpus, lambda setup, _: scaled(setup, 0.5, 0.5), 0.85),
    "T8, work gone": Case("T8", full_cpus, lambda setup, _: scaled(setup, 1e-4, 0.0), 0.0),
    "U8": Case("U8", slow_store, lambda setup, _: scaled(setup, 1.0, 0.0), 0.0),
    "X1": Case("X1", full_cpus, lambda setup, _: replace(setup, workers=max(1, int(setup.cpus))), 0.0),
}


@cache
def scored(name: str) -> list[tuple[float, Finding]]:
    """True gains with the findings that predicted them, over draws in which the rule speaks to a data-bound run."""
    case = CASES[name]
    rule = find(case.rule)
    assert rule is not None
    rng = random.Random(name)
    found = []
    for seed in range(DRAWS):
        setup = case.draw(rng)
        seen = simulate(setup, seed)
        evidence = fed_by(setup, seen)
        finding = rule.check(evidence)
        if finding is None or evidence.bound != "data":
            continue
        after = simulate(case.mend(setup, finding), 1000 + seed)
        found.append((fmean(seen.walls) / fmean(after.walls), finding))
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_rule_speaks_in_enough_draws_to_be_judged(name: str) -> None:
    assert len(scored(name)) >= DRAWS // 5


@pytest.mark.parametrize("name", CASES)
def test_the_bound_on_the_gain_holds(name: str) -> None:
    bounds = [(true, finding.gain.at_most) for true, finding in scored(name) if finding.gain is not None]
    held = sum(true <= at_most * 1.001 for true, at_most in bounds)
    assert held >= 0.95 * len(bounds), [pair for pair in bounds if pair[0] > pair[1]]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.inside])
def test_the_expected_range_holds_the_gain(name: str) -> None:
    ranges = [
        (true, *finding.gain.expected) for true, finding in scored(name) if finding.gain and finding.gain.expected
    ]
    inside = [low * (1 - NOISE) <= true <= high * (1 + NOISE) for true, low, high in ranges]
    assert sum(inside) >= CASES[name].inside * len(ranges)


@pytest.mark.parametrize("name", ["T4", "T5", "T7"])
def test_the_middle_of_the_range_is_near_the_gain(name: str) -> None:
    errors = [
        abs((finding.gain.expected[0] * finding.gain.expected[1]) ** 0.5 - true) / true
        for true, finding in scored(name)
        if finding.gain and finding.gain.expected
    ]
    assert median(errors) <= 0.15


@pytest.mark.parametrize("name", ["T4", "T5"])
def test_the_advice_never_makes_a_run_slower(name: str) -> None:
    assert all(true > 1 - NOISE for true, _ in scored(name))


@pytest.mark.parametrize("workers", [6, 8, 16, 32])
def test_fetches_that_wait_for_a_cpu_are_not_taken_for_slow_storage(workers: int) -> None:
    setup = Setup(workers=workers, fetch=computing(60.0, 0.2), loop=3.0, cpus=2.0, epoch=300)
    evidence = fed_by(setup, simulate(setup, workers))
    assert evidence.fetches is not None and evidence.fetches.cpu_share < 0.6
    said = {rule.id for rule in RULES if rule.check(evidence) is not None}
    assert {"T8", "X1"} <= said
    assert not {"T4", "U8"} & said


def test_the_simulation_agrees_with_arithmetic() -> None:
    steady: Fetch = lambda _: (0.0, 20.0)  # noqa: E731
    alone = simulate(Setup(workers=0, fetch=steady, loop=10.0, cpus=4.0))
    assert fmean(alone.walls) == pytest.approx(30.0)
    for workers, step in ((1, 20.0), (2, 10.0), (4, 10.0)):
        fed = simulate(Setup(workers=workers, fetch=steady, loop=10.0, cpus=4.0))
        assert fmean(fed.walls[8:]) == pytest.approx(step, rel=0.05)
    crowded = simulate(Setup(workers=8, fetch=lambda _: (40.0, 0.0), loop=1.0, cpus=2.0, epoch=400))
    assert fmean(crowded.walls) == pytest.approx(20.0, rel=0.05)

"""The split: a bound for every budget, never a crash, and no jump in the wrong direction."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from underfed.diagnose.split import BELONGS, Split, split
from underfed.diagnosis import Bound, Confidence, Step, Waits

SHARE = st.floats(0, 1)
WAITS = [*BELONGS, "other"]


def budget(device: float, waits: dict[str, float], *, copy: float = 0.0, ms: float = 100.0) -> Step:
    return Step(
        ms=ms,
        device_ms=device * ms,
        device_share=device,
        compute_ms=(device - copy) * ms,
        copy_ms=copy * ms,
        wait_ms=Waits(**{name: share * ms for name, share in waits.items()}),
    )


@st.composite
def budgets(draw: st.DrawFn) -> tuple[float, dict[str, float]]:
    parts = [draw(SHARE) for _ in range(1 + len(WAITS))]
    total = sum(parts)
    assume(total > 1e-6)
    device, *rest = (part / total for part in parts)
    return device, dict(zip(WAITS, rest, strict=True))


MAYBE = st.one_of(st.none(), st.floats(0, 1e9), st.just(0.0))


@given(
    ms=MAYBE,
    share=MAYBE,
    copy=MAYBE,
    waits=st.fixed_dictionaries(dict.fromkeys(WAITS, MAYBE)),
    steps=st.integers(0, 10**9),
    steady=st.booleans(),
    on_gpu=st.booleans(),
)
def test_any_budget_gets_a_bound(
    ms: float | None,
    share: float | None,
    copy: float | None,
    waits: dict[str, float | None],
    steps: int,
    steady: bool,
    on_gpu: bool,
) -> None:
    step = Step(ms=ms, device_share=share, copy_ms=copy, wait_ms=Waits(**waits))
    found = split(step, steps=steps, steady=steady, on_gpu=on_gpu)
    assert found.bound in get_args(Bound) and found.confidence in get_args(Confidence)
    if found.bound == "unknown":
        assert found.confidence == "low" and found.why


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("name", list(BELONGS))
def test_one_wait_alone_is_the_bound(name: str, on_gpu: bool) -> None:
    found = split(budget(0.05, {name: 0.95}), steps=100, on_gpu=on_gpu)
    assert found == Split(BELONGS[name], pytest.approx(0.95), "high")


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_busy_device_is_the_bound(on_gpu: bool) -> None:
    assert split(budget(0.99, {"data": 0.01}), steps=100, on_gpu=on_gpu).bound == "compute"


def test_every_pair_of_waits_is_decided_by_the_larger_bound() -> None:
    for a, b in itertools.permutations(BELONGS, 2):
        if BELONGS[a] != BELONGS[b]:
            assert split(budget(0.1, {a: 0.55, b: 0.35}), steps=100).bound == BELONGS[a]


def test_waits_of_one_bound_count_together() -> None:
    assert split(budget(0.1, {"launch": 0.2, "sync": 0.2, "stall": 0.1, "data": 0.4}), steps=100).bound == "host"


def test_nothing_measured_is_unknown() -> None:
    assert split(Step(), steps=100).bound == "unknown"
    assert split(budget(0.2, {}), steps=100).bound == "unknown"
    assert split(budget(0.2, {"data": 0.3, "other": 0.5}), steps=100).bound == "unknown"


@pytest.mark.parametrize(
    ("steps", "confidence"), [(1, "low"), (9, "low"), (10, "medium"), (29, "medium"), (30, "high")]
)
def test_few_steps_lower_the_confidence(steps: int, confidence: str) -> None:
    assert split(budget(0.1, {"data": 0.9}), steps=steps).confidence == confidence


def test_what_lowers_the_confidence() -> None:
    sure = split(budget(0.1, {"data": 0.9}), steps=100).confidence
    assert sure == "high"
    assert split(budget(0.1, {"data": 0.9}), steps=100, steady=False).confidence == "medium"
    assert split(budget(0.1, {"data": 0.75, "other": 0.15}), steps=100).confidence == "medium"
    assert split(budget(0.05, {"data": 0.48, "launch": 0.47}), steps=100).confidence == "medium"
    assert split(budget(0.79, {"data": 0.21}), steps=100).confidence == "medium"


def test_copies_that_keep_the_device_busy_are_input_not_computing() -> None:
    assert split(budget(0.95, {"transfer": 0.05}, copy=0.6), steps=100).bound == "data"
    assert split(budget(0.95, {"transfer": 0.05}, copy=0.1), steps=100).bound == "compute"


@given(budgets(), st.sampled_from(WAITS), SHARE, st.booleans())
def test_time_moved_from_the_device_to_a_wait_never_makes_it_compute(
    given_budget: tuple[float, dict[str, float]], wait: str, part: float, on_gpu: bool
) -> None:
    device, waits = given_budget
    before = split(budget(device, waits), steps=100, on_gpu=on_gpu)
    moved = device * part
    after = split(budget(device - moved, {**waits, wait: waits[wait] + moved}), steps=100, on_gpu=on_gpu)
    assert not (before.bound != "compute" and after.bound == "compute")


@given(budgets(), st.sampled_from(list(BELONGS)), SHARE)
def test_a_wait_that_is_the_bound_stays_it_when_it_grows(
    given_budget: tuple[float, dict[str, float]], wait: str, part: float
) -> None:
    device, waits = given_budget
    before = split(budget(device, waits), steps=100)
    moved = device * part
    after = split(budget(device - moved, {**waits, wait: waits[wait] + moved}), steps=100)
    if before.bound == BELONGS[wait]:
        assert after.bound == before.bound


@given(budgets(), st.floats(1e-3, 1e6))
def test_the_unit_of_time_does_not_matter(given_budget: tuple[float, dict[str, float]], ms: float) -> None:
    device, waits = given_budget
    ranked = sorted(waits.values())
    assume(abs(ranked[-1] - ranked[-2]) > 1e-6)
    one, other = split(budget(device, waits, ms=1.0), steps=100), split(budget(device, waits, ms=ms), steps=100)
    sums = {bound: sum(waits[n] for n in BELONGS if BELONGS[n] == bound) for bound in set(BELONGS.values())}
    assume(all(abs(a - b) > 1e-6 for a, b in itertools.combinations([*sums.values(), waits["other"]], 2)))
    assume(all(abs(device - cut) > 1e-6 for cut in (0.7, 0.8, 0.9)))
    assert one.bound == other.bound

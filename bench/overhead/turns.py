"""What watching costs a step, in turns of one process: `python bench/overhead/turns.py [--rounds 200]`.

Two processes never have the same memory layout, and on a shared machine no two seconds are alike: between processes a
loop of 0.5 ms differs from itself by more than what is looked for. So the loop runs bare, watched, bare in one process,
over and over, in short stretches, with the same agent as under `underfed run`; a round's cost is the watched stretch
less the mean of its neighbours. Looks at the training thread are rarer once there were many of them: `watched later`
begins with as many. The same with nothing switched on, `bare again`, is what the method itself shows. A
round gives one difference of the medians and one of the 10th percentiles, which a busy machine disturbs less; printed
are the medians of all rounds with their 95 % intervals (bootstrap).
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from loop import make
from run import SIZES_MS, header

import underfed
from underfed.observe.agent import sampler

#: A stretch in ms: short, so that the machine is the same in its neighbours.
_STRETCH_MS = 25.0
#: The first steps of a stretch, in which hooks and caches are new.
_LEFT_OUT = 5


def stretch(times: list[int]) -> tuple[float, float]:
    """Return median and 10th percentile in us, without the first steps."""
    steady = sorted(times[_LEFT_OUT:])
    return statistics.median(steady) / 1e3, steady[len(steady) // 10] / 1e3


@contextmanager
def later() -> Iterator[None]:
    """Watch as the agent does once it has looked often."""
    with underfed.watch(window=None):
        sampler._looks = sampler.MANY
        yield


ARMS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "watched": lambda: underfed.watch(window=None),
    "watched later": later,
    "bare again": nullcontext,
}


def row(name: str, bare: float, rounds: list[tuple[float, float]]) -> str:
    cells = []
    for values in zip(*rounds, strict=True):
        low, high = median_interval(values)
        cells.append(f"{statistics.median(values):+.1f} ({low:+.1f} to {high:+.1f})")
    return f"| {bare / 1e3:.2f} ms | {name} | {' | '.join(cells)} |"


def median_interval(values: tuple[float, ...]) -> tuple[float, float]:
    """Return the 95 % interval of the median by resampling."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[974]


def difference(
    loop: Callable[[int, int], list[int]], work: int, steps: int, arm: str
) -> tuple[float, tuple[float, float]]:
    """Return the bare median of one round and what watching added to median and 10th percentile, in us."""
    before = stretch(loop(work, steps))
    with ARMS[arm]():
        between = stretch(loop(work, steps))
    after = stretch(loop(work, steps))
    added = [b - (a + c) / 2 for a, b, c in zip(before, between, after, strict=True)]
    return before[0], (added[0], added[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    print(header(f"{args.rounds} rounds"))
    loop = make()
    loop(0, 2000)
    base = stretch(loop(0, 1000))[1]
    unit = (stretch(loop(200, 300))[1] - base) / 200
    print("| step, bare | arm | step: medians (us) | 10th percentiles (us) |\n|---|---|---|---|")
    for size in SIZES_MS:
        work = max(0, round((size * 1e3 - base) / unit))
        steps = _LEFT_OUT + max(8, round(_STRETCH_MS / size))
        bares: list[float] = []
        found: dict[str, list[tuple[float, float]]] = {arm: [] for arm in ARMS}
        for _ in range(args.rounds):
            for arm, rounds in found.items():
                bare, added = difference(loop, work, steps, arm)
                bares.append(bare)
                rounds.append(added)
        for arm, rounds in found.items():
            print(row(arm, statistics.median(bares), rounds), flush=True)


if __name__ == "__main__":
    main()

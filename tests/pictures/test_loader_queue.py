"""How many batches lie ready, against a loader that is played through batch by batch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pictures_help import planted, recording

from underfed.pictures.loader import Fetch, depths, fetches, section
from underfed.recording.records import NEW_EPOCH, STEP_COLUMNS


def row(step: int, end: int, taken: int, *, new: bool) -> list[int]:
    values = dict.fromkeys(STEP_COLUMNS, 0)
    values |= {"index": step, "end": end, "fetches": taken, "flags": NEW_EPOCH if new else 0}
    return list(values.values())


def played(
    seed: int, workers: int, prefetch: int, batches: int, passes: int, *, leave_early: bool = False
) -> tuple[list[Fetch], list[list[int]], list[int]]:
    """Return fetches and rows as they would be recorded, and how many batches truly lay ready at each step's end."""
    draw = random.Random(seed)
    made: list[Fetch] = []
    rows: list[list[int]] = []
    truth: list[int] = []
    now = 0
    for number in range(passes):
        free = [now] * workers
        ends: list[int] = []

        def hand_out(task: int, at: int, free: list[int] = free, ends: list[int] = ends) -> None:
            # Torch gives tasks to the workers in turns, and a worker does its own in order.
            worker = task % workers
            begin, length = max(at, free[worker]), draw.randint(1, 400)
            free[worker] = begin + length
            ends.append(begin + length)
            made.append(Fetch(begin + length, worker, length * 1e-6, length * 1e-6, None, None))

        for task in range(min(batches, workers * prefetch)):
            hand_out(task, now)
        used = batches if number == passes - 1 or not leave_early else batches // 2
        for step in range(used):
            now = max(now, ends[step])  # batches come in order, whichever is ready first
            if len(ends) < batches:
                hand_out(len(ends), now)
            now += draw.randint(1, 200)
            # The first batch of all is taken unseen; the first of a later pass comes behind a request that got none.
            taken = 0 if not rows else 1 + (number > 0 and step == 0 and not leave_early)
            rows.append(row(len(rows), now, taken, new=step == 0))
            truth.append(sum(end <= now for end in ends) - step - 1)
    return sorted(made, key=lambda fetch: fetch.end), rows, truth


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4), st.integers(1, 30), st.integers(1, 4))
def test_the_count_is_that_of_the_loader_itself(
    seed: int, workers: int, prefetch: int, batches: int, passes: int
) -> None:
    made, rows, truth = played(seed, workers, prefetch, batches, passes)
    found = depths(made, rows, workers * prefetch)
    assert [depth for _, depth in found] == truth
    assert [step for step, _ in found] == list(range(len(rows)))


def test_a_count_that_cannot_be_is_not_shown() -> None:
    made, rows, _ = played(1, 2, 2, 20, 1)
    assert depths(made[:10], rows, 4) == [], "more taken than made"
    assert depths([*made[:4], *made], rows, 4) == [], "more ready than the queue holds"
    assert depths(made, [], 4) == []


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("healthy_conv", (0.0, 0.05)),
        ("one_worker_latency", (0.9, 1.0)),
        ("short_epochs", (0.1, 0.6)),
        ("eight_workers", (0.0, 0.1)),
    ],
)
def test_how_often_the_queue_of_a_planted_script_is_empty(
    name: str, empty: tuple[float, float], tmp_path: Path
) -> None:
    (chart,) = [one for one in section(planted(name, tmp_path)).charts if one.id == "queue-chart"]
    steps = {row[0]: int(row[1] or 0) for row in chart.table.rows}
    assert empty[0] <= steps.get("0", 0) / sum(steps.values()) <= empty[1]


@pytest.mark.parametrize("name", ["workers_few", "respawn"])
def test_a_starved_loop_of_a_real_run_finds_its_queue_empty(name: str) -> None:
    material = recording(name)
    assert material.recording is not None
    assert material.log is not None
    rows = material.log.step_rows()
    ready = [depth for _, depth in depths(fetches(material.recording, material.log), rows, 24)]
    assert ready, "not shown"
    data = STEP_COLUMNS.index("data")
    for before, after in zip(ready, rows[1:], strict=False):
        if before >= 4:
            assert after[data] < 20_000_000, "a long wait although batches lay ready"
    assert ready.count(0) > 5

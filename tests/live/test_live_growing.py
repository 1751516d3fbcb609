"""A recording that is read while it grows says what it says as a whole; windows put together likewise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from underfed.diagnose.run import diagnose
from underfed.live_view.growing import LEAST_ROWS, MOST_ROWS, WINDOW_S, GrowingRecording, Tail
from underfed.observe.host.tree import Process
from underfed.observe.live.proc import Thread
from underfed.observe.live.rolling import joined
from underfed.observe.live.stacks import Frame, Sampling, ThreadStacks
from underfed.observe.live.window import Life, Seen
from underfed.recording import records as r
from underfed.recording.read import read

FIXTURES = sorted(path for path in (Path(__file__).parents[1] / "fixtures" / "h200").glob("*") if path.is_dir())
WALL = r.STEP_COLUMNS.index("wall")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda each: b"\n" not in each), max_size=12), st.data())
def test_every_line_comes_once_and_whole_however_the_file_was_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("tail") / "file"
    whole = b"".join(line + b"\n" for line in lines)
    tail, found, at = Tail(path), [], 0
    while at < len(whole):
        size = data.draw(st.integers(1, 20))
        with path.open("ab") as file:
            file.write(whole[at : at + size])
        at += size
        found += list(tail.lines())
    assert found == lines


@pytest.mark.skipif(not FIXTURES, reason="no recordings of real runs here")
@pytest.mark.parametrize("folder", FIXTURES[:6], ids=lambda path: path.name)
def test_real_recordings_read_piece_by_piece_give_the_same_steps_and_the_same_verdict(
    folder: Path, tmp_path: Path
) -> None:
    whole = read(folder)
    growing = GrowingRecording(tmp_path)
    files = [path for path in folder.iterdir() if path.suffix == ".jsonl"]
    contents = {path.name: path.read_bytes() for path in files}
    steps: list[float] = []
    for part in range(1, 8):
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content[: len(content) * part // 7])
        steps += growing.poll()[0]
    main = growing.main
    assert main is not None
    (log,) = [log for log in whole.processes if log.name == main.name]
    assert steps == [row[WALL] / 1e6 for row in log.step_rows()]
    kept = growing.recording()
    assert [log.process for log in kept.processes] == [log.process for log in whole.processes]
    if sum(row[WALL] for row in log.step_rows()) < WINDOW_S * 1e9:
        assert diagnose(kept).verdict == diagnose(whole).verdict


def step_line(first: int, wall_ns: int, count: int) -> bytes:
    rows = []
    for at in range(first, first + count):
        row = dict.fromkeys(r.STEP_COLUMNS, 0)
        row |= {"index": at, "end": (at + 1) * wall_ns, "wall": wall_ns, "pre": wall_ns}
        rows.append(list(row.values()))
    return msgspec.json.encode(r.Steps(rows=rows)) + b"\n"


@pytest.mark.parametrize(("wall_s", "count"), [(0.001, 1000), (0.1, 10), (20.0, 1)])
def test_hours_of_steps_take_no_more_room_than_the_window_and_leave_enough_of_long_ones(
    wall_s: float, count: int, tmp_path: Path
) -> None:
    growing = GrowingRecording(tmp_path)
    file = tmp_path / "p1.jsonl"
    file.write_bytes(msgspec.json.encode(r.Process(pid=1, ppid=0)) + b"\n")
    wall, flushes = int(wall_s * 1e9), 400
    stack = msgspec.json.encode(r.Stacks(rows=[("pre", "own", "a.py:1", "a.py:1", 10, 1)])) + b"\n"
    for flush in range(flushes):
        with file.open("ab") as opened:
            opened.write(step_line(flush * count, wall, count) + stack)
        assert len(growing.poll()[0]) == count
    (log,) = growing.recording().processes
    rows = log.step_rows()
    within = min(flushes * count, max(LEAST_ROWS, int(WINDOW_S / wall_s)), MOST_ROWS)
    assert within <= len(rows) <= within + 2 * count
    assert [row[0] for row in rows] == list(range(len(rows))), "counted from the window's first step"
    assert len(log.of(r.Stacks)) <= len(log.of(r.Steps)) + 1


def life(pid: int, cpu: int, threads: dict[int, tuple[int, int]]) -> Life:
    process = Process(pid, 1, "python", "S", cpu, 0, 1, 0, 0, 10, None, None, None, None, None)
    first = {tid: Thread(tid, "t", "S", begin, None, None, None) for tid, (begin, _) in threads.items() if begin >= 0}
    last = {tid: Thread(tid, "t", "S", end, None, None, None) for tid, (_, end) in threads.items()}
    return Life(process, process, 0.0, 1.0, [], None, True, first, last, Counter({"S": 1}))


def window(begun: float, lives: list[Life], samples: dict[int, list[str]]) -> Seen:
    stacks = [
        ThreadStacks(1, tid, "t", [(Frame(name, "a.py", 1),) for name in names], 1) for tid, names in samples.items()
    ]
    return Seen(
        *(None, 2.0, "window", lives, None, begun, begun + 2, None, None, []),  # type: ignore[arg-type]
        sampling=Sampling(stacks, 20, 0.5, 1, None),
        holding=None,
        sources={},
        own_cpu_s=0.25,
        begun=begun,
    )


def test_two_windows_count_each_thread_from_where_it_was_first_seen() -> None:
    # thread 8 begins within the first window (no first reading there), 9 within the second, 7 is there all along
    first = window(100.0, [life(5, 50, {7: (10, 20), 8: (-1, 3)})], {7: ["a", "b"]})
    second = window(102.5, [life(5, 90, {7: (21, 40), 8: (3, 9), 9: (-1, 2)}), life(6, 1, {6: (0, 1)})], {7: ["c"]})
    both = joined([first, second])
    assert both.seconds == 4.5
    assert (both.before, both.after) == (100.0, 104.5)
    (main, other) = sorted(both.lives, key=lambda each: each.first.pid)
    used = {
        tid: last.cpu_ms - (main.threads_first[tid].cpu_ms if tid in main.threads_first else 0)
        for tid, last in main.threads_last.items()
    }
    assert used == {7: 30, 8: 9, 9: 2}
    assert main.last.utime_ms - main.first.utime_ms == 40
    assert other.first.pid == 6
    (stacks,) = both.sampling.threads
    assert [stack[0].name for stack in stacks.samples] == ["a", "b", "c"]
    assert (stacks.torn, both.sampling.errors, both.sampling.cpu_s, both.own_cpu_s) == (2, 2, 1.0, 0.5)
    assert joined([first]) is first


def test_a_process_that_is_missing_from_the_last_window_is_gone() -> None:
    first = window(0.0, [life(5, 1, {}), life(6, 1, {})], {})
    second = window(2.0, [life(5, 2, {})], {})
    assert {each.first.pid: each.gone for each in joined([first, second]).lives} == {5: False, 6: True}

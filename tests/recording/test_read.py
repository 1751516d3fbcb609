"""A recording reads whatever happened to it: cut short at any byte, damaged, or not a recording at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from underfed.errors import UsageError
from underfed.recording import records as r
from underfed.recording.read import HEADER, read, read_process

WIDTH = len(r.STEP_COLUMNS)
LINES = [
    {"k": "process", "pid": 1, "ppid": 0},
    {"k": "steps", "rows": [[i, 0, 10**9 * i, 10**9, 0, *[0] * (WIDTH - 5)] for i in range(4)]},
    {"k": "fetches", "worker": 0, "workers": 2, "rows": [[5, 4, 3, 3, None, 8, 1]]},
    {"k": "stacks", "rows": [["pre", "forward", "t.py:1", "t.py:1", 100, 1]]},
    {"k": "end", "steps": 4},
]


def text(lines: list[object]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_cut_short_at_every_byte(tmp_path: Path) -> None:
    whole, file = text(LINES), tmp_path / "p1-a.jsonl"
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        log = read_process(file)
        complete = sum(end <= cut for end in ends)
        if complete == 0:
            assert log is None
        else:
            assert log is not None and log.damaged == 0
            assert len(log.lines) == complete - 1
            assert len(log.step_rows()) == (4 if complete >= 2 else 0)
            assert log.ended == (complete == len(LINES))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
known = st.sampled_from(["process", "loader", "steps", "fetches", "stacks", "syncs", "copies", "facts", "trace", "end"])
lines = st.one_of(
    st.binary(max_size=60),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(["rows", "pid", "t", "step", "state"]), json_values, max_size=4).flatmap(
        lambda fields: known.map(lambda kind: json.dumps({**fields, "k": kind}).encode())
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(lines, max_size=8))
def test_damaged_lines_are_counted_and_the_others_kept(
    tmp_path_factory: pytest.TempPathFactory, damage: list[bytes]
) -> None:
    file = tmp_path_factory.mktemp("r") / "p1-a.jsonl"
    kept = text(LINES)
    file.write_bytes(text(LINES[:1]) + b"\n".join(line.replace(b"\n", b" ") for line in damage) + b"\n" + kept)
    log = read_process(file)
    assert log is not None and log.process.pid == 1
    assert len(log.step_rows()) >= 4
    assert all(isinstance(line, r.Line) for line in log.lines)
    assert all(isinstance(value, int) for row in log.step_rows() for value in row)


def test_what_is_not_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a recording"):
        read(tmp_path)
    with pytest.raises(UsageError, match="not a recording"):
        read(tmp_path / "nowhere")
    (tmp_path / HEADER).write_text('{"schema": "underfed.recording/99"}')
    with pytest.raises(UsageError, match="another version"):
        read(tmp_path)


def test_workers_are_told_from_training_processes(tmp_path: Path) -> None:
    (tmp_path / HEADER).write_text('{"schema": "underfed.recording/1"}')
    (tmp_path / "p1-a.jsonl").write_bytes(text(LINES[:2]))
    (tmp_path / "p2-a.jsonl").write_bytes(text([{"k": "process", "pid": 2, "ppid": 1, "role": "worker", "worker": 0}]))
    (tmp_path / "p3-a.jsonl").write_bytes(b'{"k": "steps", "rows": []}\n')
    found = read(tmp_path)
    assert [log.process.pid for log in found.processes] == [1]
    assert [log.process.pid for log in found.workers] == [2]

"""Memory: it grows with the rows that are kept, and not with the text around them or the size of the file."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

MEASURE = """
import resource, sys
from underfed.trace.kineto import read
from underfed.timeline.facts import facts_of
from pathlib import Path
small = sys.argv[2:]
read(Path(sys.argv[1]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in small:
    found = facts_of(read(Path(path)))
print(before // 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, found.events)
"""


def write(path, events, padding):
    row = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "dur": 5.0}
    blob = "x" * padding
    head = b'{"schemaVersion": 1, "traceEvents": ['
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        file.write(head)
        for at in range(events):
            event = {**row, "ts": at * 10.0, "args": {"External id": at, "Comment": blob}}
            file.write((b", " if at else b"") + json.dumps(event).encode())
        file.write(b"]}")
    return path


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_eighty_megabytes_of_text_around_few_rows_take_next_to_nothing(tmp_path, suffix):
    small = write(tmp_path / f"small{suffix}", 200, 100)
    large = write(tmp_path / f"large{suffix}", 2_000, 40_000)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(small), str(large)], capture_output=True, text=True, check=True
    )
    before, after, events = map(int, done.stdout.split())
    assert events == 2_000
    assert after - before < 30


def test_half_a_million_rows_take_tens_of_bytes_each(tmp_path):
    small = write(tmp_path / "small.json", 200, 0)
    large = write(tmp_path / "large.json", 500_000, 0)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(small), str(large)], capture_output=True, text=True, check=True
    )
    before, after, events = map(int, done.stdout.split())
    assert events == 500_000
    # Columns of 37 bytes a row, and what the sums need of them at a time; the text has 130 bytes a row.
    assert after - before < 120

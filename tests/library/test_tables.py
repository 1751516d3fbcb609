"""Frames: of polars and of pandas, against sums and readers of others."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pandas
import polars
import pytest

pytest.importorskip("torch")

from library_help import Loop

import underfed
from underfed.errors import UsageError
from underfed.library.tables import TABLES

FIXTURES = Path(__file__).parents[1] / "fixtures" / "h200"


@pytest.fixture(scope="module")
def recording() -> underfed.Recording:
    loop = Loop(30, workers=2, multiprocessing_context="fork")
    with underfed.watch(window=None) as w:  # what opens a window is no part of a step
        loop.train()
        loop.train()
    return w.recording


def test_parts_of_a_step_add_up_in_the_frame(recording: underfed.Recording) -> None:
    steps = recording.frame("steps")
    assert isinstance(steps, polars.DataFrame)
    assert steps.columns == [column.name for column in TABLES["steps"]]
    parts = [column.name for column in TABLES["steps"] if column.name.endswith("_ms") and column.name != "wall_ms"]
    assert (steps.select(polars.sum_horizontal(parts)).to_series() - steps["wall_ms"]).abs().max() < 1e-6
    assert steps.filter(polars.col("closed_by") == "optimizer").height == 60
    assert steps["fetches"].sum() == 60
    assert steps["new_epoch"].sum() == 2
    ends = steps["at_s"].diff().drop_nulls()
    assert (ends - steps["wall_ms"][1:] / 1e3).abs().max() < 1e-6


def test_fetches_are_those_of_both_workers(recording: underfed.Recording) -> None:
    fetches = underfed.frame(recording, "fetches", "pandas")
    assert list(fetches.columns) == [column.name for column in TABLES["fetches"]]
    assert len(fetches) == 60
    assert set(fetches["worker"]) == {0, 1}
    assert (fetches["samples"] == 4).all()
    assert (fetches["wall_ms"] >= 4 * 6).all()  # four samples that each wait for 6 ms
    assert fetches["at_s"].is_monotonic_increasing


def test_polars_and_pandas_hold_the_same(recording: underfed.Recording) -> None:
    for table in ("steps", "fetches"):
        one, other = recording.frame(table, "polars"), recording.frame(table, "pandas")
        assert isinstance(other, pandas.DataFrame)
        again = [tuple(None if pandas.isna(value) else value for value in row) for row in other.itertuples(index=False)]
        assert one.rows() == again


def trace(path: Path) -> Path:
    """Write a trace: three kernels on one stream with gaps of 100 and 300 us, each launched right before it runs."""
    events = []
    for number, (start, length, name) in enumerate([(1000, 200, "a"), (1300, 100, "b"), (1700, 400, "a")]):
        shared = {"ph": "X", "args": {"correlation": number + 1, "stream": 7, "device": 0}}
        events.append({**shared, "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length})
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": start - 20, "dur": 5}
        events.append({**launch, "ph": "X", "args": {"correlation": number + 1}})
    properties = {"id": 0, "name": "NVIDIA H200"}
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "deviceProperties": [properties], "traceEvents": events}, file)
    return path


def test_gaps_and_kernels_of_a_trace_made_by_hand(tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.json.gz")
    gaps = underfed.frame(path, "gaps")
    assert gaps.columns == [column.name for column in TABLES["gaps"]]
    assert gaps["length_ms"].sum() == pytest.approx(0.4)
    inside = gaps.with_columns(end=polars.col("start_ms") + polars.col("length_ms"))
    assert inside.filter((polars.col("start_ms") >= 0.2 - 1e-9) & (polars.col("end") <= 0.3 + 1e-9))[
        "length_ms"
    ].sum() == pytest.approx(0.1)
    kernels = underfed.frame(str(path), "kernels")
    assert kernels.rows() == [("a", 2, pytest.approx(0.6), pytest.approx(400.0), pytest.approx(400.0)),
                              ("b", 1, pytest.approx(0.1), pytest.approx(100.0), pytest.approx(100.0))]  # fmt: skip
    assert underfed.read(path).subject.kind == "trace"


def test_what_cannot_be_had_is_said_in_one_line(recording: underfed.Recording, tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.json.gz")
    for source, table, library, words in (
        (recording, "step", None, "no table 'step'; there are steps"),
        (recording, "steps", "numpy", "give polars or pandas"),
        (recording, "kernels", None, "need device events"),
        (path, "steps", None, "are in a recording, not in a trace"),
        (tmp_path / "gone.json", "kernels", None, "gone.json"),
    ):
        with pytest.raises(UsageError, match=words) as error:
            underfed.frame(source, table, library)
        assert "\n" not in str(error.value)


def test_without_polars_pandas_is_taken_and_without_both_the_extra_is_named() -> None:
    source = """
import importlib.util, sys
gone = set(sys.argv[1:])
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name in gone else find(name, *a)
from underfed.library.tables import _library
print(_library(None))
"""
    run = [sys.executable, "-c", source]
    assert subprocess.run([*run, "polars"], capture_output=True, text=True, check=True).stdout == "pandas\n"
    both = subprocess.run([*run, "polars", "pandas"], capture_output=True, text=True, check=False)
    assert "pip install 'underfed[frames]'" in both.stderr

"""The line of code that made each gap: by the stack that the trace has at that time, not by the cause alone."""

from __future__ import annotations

import json
from pathlib import Path

from underfed.pictures import lanes, perfetto
from underfed.pictures.material import Material, load

LOADS, LOGS = "/home/me/train.py(12): load", "/home/me/train.py(30): log"
CALLER = "/home/me/train.py(50): main"
LIBRARY = "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py(1500): _call_impl"


def traced(path: Path) -> Material:
    """Two steps of 10 ms: in each the device works twice for 1 ms, and waits behind `load` first and `log` later."""
    events = []
    for step in (0, 1):
        at = step * 10_000
        mark = {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 9_990}
        events.append({**mark, "ph": "X", "pid": 1, "tid": 1})
        for number, (begin, python) in enumerate([(3_000, LOADS), (8_000, LOGS)]):
            one = 1 + 2 * step + number
            args = {"correlation": one}
            stack = [(CALLER, at, 9_980), (python, at + begin - 2_900, 2_800), (LIBRARY, at + begin - 2_000, 500)]
            for name, start, length in stack:
                frame = {"cat": "python_function", "name": name, "ts": start + number, "dur": length - 2 * number}
                if name != CALLER or not number:
                    events.append({**frame, "ph": "X", "pid": 1, "tid": 1})
            launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + begin - 50, "dur": 10}
            events.append({**launch, "ph": "X", "pid": 1, "tid": 1, "args": args})
            kernel = {"cat": "kernel", "name": "gemm", "ts": at + begin, "dur": 1_000}
            events.append({**kernel, "ph": "X", "pid": 0, "tid": 7, "args": {**args, "device": 0, "stream": 7}})
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return load([str(path)])


def test_each_gap_of_the_timeline_names_its_own_line(tmp_path: Path) -> None:
    material = traced(tmp_path / "trace.json")
    (chart,) = lanes.section(material).charts[:1]
    assert chart.spec is not None
    gaps = [row for row in chart.spec["data"]["values"] if row["lane"] == "device idle, why" and row["end"] > 0.5]
    first = max((row for row in gaps if row["end"] <= 3.01), key=lambda row: row["end"] - row["start"])
    later = max((row for row in gaps if row["start"] >= 3.99), key=lambda row: row["end"] - row["start"])
    assert first["where"] == "/home/me/train.py:12"
    assert later["where"] == "/home/me/train.py:30"
    by_line = {row[3] for row in chart.table.rows}
    assert {"/home/me/train.py:12", "/home/me/train.py:30"} <= by_line


def test_each_gap_in_perfetto_names_its_own_line(tmp_path: Path) -> None:
    events = json.loads(perfetto.render(traced(tmp_path / "trace.json")))["traceEvents"]
    idle = {event["tid"] for event in events if event["ph"] == "M" and "device idle" in event["args"].get("name", "")}
    lines = {event["args"].get("where") for event in events if event["ph"] == "X" and event["tid"] in idle}
    assert {"/home/me/train.py:12", "/home/me/train.py:30"} <= lines
    assert not any("site-packages" in str(line) for line in lines)

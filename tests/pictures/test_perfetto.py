"""The trace for Perfetto by the rules of its format, and its tracks against what they were drawn from."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pictures_help import FIXTURES, RECORDINGS, hostile_recording, recording, shared

from underfed.diagnosis import to_json
from underfed.errors import MeasurementError
from underfed.pictures import perfetto
from underfed.pictures.material import Material, load
from underfed.pictures.steps import of_log


def tracks_of(material: Material) -> dict[str, list[dict[str, Any]]]:
    """Slices by the name of their track, after a check of every event against the format."""
    document = json.loads(perfetto.render(material))
    assert document["displayTimeUnit"] in {"ms", "ns"}
    names: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    slices: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                assert (event["pid"], event["tid"]) not in names
                names[event["pid"], event["tid"]] = event["args"]["name"]
            else:
                assert event["name"] == "thread_sort_index"
        else:
            assert event["ph"] == "X"
            assert event["name"].isprintable()
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            slices[event["pid"], event["tid"]].append(event)
    assert set(slices) <= set(names), "a track without a name"
    assert {process for process, _ in slices} <= set(processes)
    for many in slices.values():
        many.sort(key=lambda event: event["ts"])
        for before, after in itertools.pairwise(many):
            assert before["ts"] + before["dur"] <= after["ts"] + 0.0011, "slices of one track overlap"
    return {f"{processes[key[0]]}/{names[key]}": many for key, many in slices.items()}


@pytest.mark.parametrize("name", RECORDINGS[::2])
def test_recordings(name: str) -> None:
    material = recording(name)
    tracks = tracks_of(material)
    (verdict,) = tracks["underfed/verdict"]
    assert verdict["args"]["bound"] == material.diagnosis.verdict.bound
    for finding in material.diagnosis.findings:
        assert tracks[f"underfed/finding {finding.rule}"][0]["name"] == f"{finding.rule} {finding.name}"
    assert material.window is not None
    assert material.log is not None
    walls = [step.ms for step in of_log(material.log) if step.traced]
    drawn = [event["dur"] / 1000 for event in tracks["underfed/steps"]]
    assert drawn
    assert all(any(abs(one - wall) < 0.01 for wall in walls) for one in drawn)


@pytest.mark.parametrize("name", ["workers_few", "ckpt_stall", "tiny_ops"])
def test_gaps_and_work_fill_the_time(name: str) -> None:
    tracks = tracks_of(recording(name))
    verdict = tracks["underfed/verdict"][0]
    idle = sum(event["dur"] for key, many in tracks.items() if "device idle" in key for event in many)
    edges = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for key, many in tracks.items()
        if key.startswith("device/")
        for event in many
    )
    busy, reach = 0.0, 0.0
    for begin, end in edges:
        busy += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    assert idle + busy == pytest.approx(verdict["dur"], rel=1e-3)


def test_a_shared_trace_keeps_every_device_event() -> None:
    (path,) = shared("traces/hta/critical_path__alexnet*")
    material = load([path])
    assert material.timeline is not None
    drawn = sum(len(many) for key, many in tracks_of(material).items() if key.startswith("device/"))
    assert drawn == material.timeline.device.start.size


def test_a_hostile_recording(tmp_path: Path) -> None:
    tracks_of(load([str(hostile_recording(tmp_path / "hostile"))]))


def test_a_recording_without_a_trace_has_its_steps(tmp_path: Path) -> None:
    for path in (FIXTURES / "workers_few.before").iterdir():
        if not path.name.startswith("trace-"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    material = load([str(tmp_path)])
    assert material.log is not None
    assert len(tracks_of(material)["underfed/steps"]) == len(of_log(material.log))


def test_a_diagnosis_alone_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    path.write_bytes(to_json(recording("nchw").diagnosis))
    with pytest.raises(MeasurementError):
        perfetto.render(load([str(path)]))

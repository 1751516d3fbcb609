"""The trace opened by Perfetto itself: its importer refuses nothing, its tables hold every slice, its page shows it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from perfetto_ui_help import Viewer, perfetto_ui
from pictures_help import browser, hostile_recording, recording

from underfed.pictures import perfetto
from underfed.pictures.material import load


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as started:
        yield started


def assert_read_in_full(viewer: Viewer, trace: bytes) -> None:
    """Perfetto's tables hold exactly the slices of the file: by track, with begin, length and name."""
    assert viewer.complaints() == []
    assert viewer.page.evaluate("app.trace.traceInfo.importErrors") == 0
    events = json.loads(trace)["traceEvents"]
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    expected: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            track = processes[event["pid"]], named[event["pid"], event["tid"]]
            expected.setdefault(track, []).append(
                (round(event["ts"] * 1000), round(event["dur"] * 1000), event["name"])
            )
    found = viewer.slices()
    assert {track: sorted(many) for track, many in found.items()} == {
        track: sorted(many) for track, many in expected.items()
    }
    depths = viewer.query("select distinct depth from slice")
    assert depths == [[0]], "slices of a track are nested, so some overlap"


def test_a_recording_is_shown_with_its_verdict_steps_and_causes(chrome: Any) -> None:
    material = recording("ckpt_stall")
    trace = perfetto.render(material)
    with perfetto_ui(chrome, gzip.compress(trace)) as viewer:
        assert_read_in_full(viewer, trace)
        (verdict,) = viewer.query(
            "select slice.name, extract_arg(arg_set_id, 'args.bound') from slice join thread_track "
            "on slice.track_id = thread_track.id join thread using (utid) where thread.name = 'verdict'"
        )
        assert verdict[0].startswith(material.diagnosis.verdict.text[:150])
        assert verdict[1] == "host"
        lines = viewer.query(
            "select distinct extract_arg(arg_set_id, 'args.where') from slice where name like 'Python%'"
        )
        assert any("train.py:" in str(line) for (line,) in lines), "the gaps do not say which line made them"
        viewer.opened("underfed")
        for track in ("verdict", "steps", "finding X6", "device idle"):
            viewer.shows(track)


def test_names_of_a_hostile_recording_stay_names(chrome: Any, tmp_path: Path) -> None:
    trace = perfetto.render(load([str(hostile_recording(tmp_path / "hostile"))]))
    with perfetto_ui(chrome, trace) as viewer:
        assert_read_in_full(viewer, trace)
        viewer.opened("device")
        viewer.opened("underfed")
        viewer.shows("verdict")
        assert viewer.page.evaluate("window.pwned") is None

"""Recordings that are cut, foreign or damaged: what is whole is drawn, and the page is whole in any case."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from pictures_help import FIXTURES
from pictures_source import Source, assert_closed_world

from underfed.errors import MeasurementError
from underfed.pictures import html, markdown, perfetto
from underfed.pictures.material import load
from underfed.recording.records import STEP_COLUMNS


def copied(folder: Path, keep: Callable[[str], bool] = lambda _: True) -> Path:
    folder.mkdir()
    for path in (FIXTURES / "workers_few.before").iterdir():
        if keep(path.name):
            shutil.copy(path, folder)
    return folder


def header_only(folder: Path) -> Path:
    return copied(folder, lambda name: name == "recording.json")


def no_header(folder: Path) -> Path:
    return copied(folder, lambda name: name != "recording.json")


def no_trace(folder: Path) -> Path:
    return copied(folder, lambda name: not name.startswith("trace-"))


def cut_trace(folder: Path) -> Path:
    for path in copied(folder).glob("trace-*"):
        path.write_bytes(path.read_bytes()[:50_000])
    return folder


def foreign_trace(folder: Path) -> Path:
    for path in copied(folder).glob("trace-*"):
        path.unlink()
        path.symlink_to("/etc/passwd")
    return folder


def half_a_diagnosis(folder: Path) -> Path:
    (copied(folder) / "diagnosis.json").write_text('{"schema":"underfed.diagnosis/1"')
    return folder


def torn_lines(folder: Path) -> Path:
    for path in copied(folder).glob("*.jsonl"):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + b"\x00\xff{" + data[len(data) // 2 :])
    return folder


def impossible_numbers(folder: Path) -> Path:
    for path in copied(folder).glob("p*.jsonl"):
        lines = []
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if found["k"] == "steps":
                found["rows"] = [
                    [-abs(n) if at % 3 else n * 10**6 for at, n in enumerate(row)] for row in found["rows"]
                ]
            elif found["k"] == "fetches":
                found["rows"] += [[None] * 7, [1, 2], [10**18, 10**18, -5, 0, 0, 0, 0]]
            elif found["k"] == "loader":
                found["workers"] = -3
            lines.append(json.dumps(found))
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


ODD = [header_only, no_header, no_trace, cut_trace, foreign_trace, half_a_diagnosis, torn_lines, impossible_numbers]


@pytest.mark.parametrize("make", ODD)
def test_it_is_drawn_as_far_as_it_goes(make: Callable[[Path], Path], tmp_path: Path) -> None:
    material = load([str(make(tmp_path / "odd"))])
    source = Source(html.render(material))
    assert_closed_world(source)
    assert "root:" not in source.text
    json.loads(source.scripts[0])
    assert material.diagnosis.verdict.text.split()[0] in markdown.render(material.diagnosis)
    try:
        json.loads(perfetto.render(material))
    except MeasurementError:
        assert make is header_only


def test_ranks_of_a_recording_come_late_one_first(tmp_path: Path) -> None:
    """Two ranks with the same steps, of which the second spends half of each in its backward pass, waiting."""
    folder = no_trace(tmp_path / "ranks")
    (main,) = (path for path in folder.glob("p*.jsonl") if '"role":"main"' in path.read_text().splitlines()[0])
    at = {name: place for place, name in enumerate(STEP_COLUMNS)}
    waited = []
    for rank in (0, 1):
        lines = []
        for line in main.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if found["k"] == "process":
                found["rank"], found["world"] = rank, 2
            if found["k"] == "steps" and rank == 1:
                for row in found["rows"]:
                    row[at["backward"]] = row[at["wall"]] // 2
                    waited.append(row[at["backward"]] * 1e-6)
            lines.append(json.dumps(found))
        (folder / f"p{rank + 1}-{rank}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    main.unlink()
    text = html.render(load([str(folder)]))
    table = text[text.index('id="rank-chart"') :].partition("</table>")[0]
    ranks = [part.partition("<bdi>")[2].partition("<")[0] for part in table.split('<th scope="row">')[1:]]
    assert ranks == ["0", "1"]
    assert fmean(waited) > 1

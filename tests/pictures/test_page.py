"""The page by its source: one file, one script, no network, and nothing that a name can break out of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from pictures_help import FIXTURES, RECORDINGS, page_of, recording
from pictures_source import Source, assert_closed_world
from strategies import diagnoses

from underfed.diagnosis import Diagnosis, to_json
from underfed.pictures import bundle, html
from underfed.pictures.material import Material, load

vl_convert = pytest.importorskip("vl_convert", reason="needs the extra `report`")


@pytest.mark.parametrize("name", RECORDINGS[::2])
def test_a_recording_is_one_small_file(name: str) -> None:
    text = page_of(name)
    assert len(text.encode()) < 5_000_000
    source = Source(text)
    assert_closed_world(source)
    said = " ".join(source.text.split())
    assert recording(name).diagnosis.verdict.text in said
    widths = [
        float(found[1])
        for tag, one in source.found
        if tag == "span" and (found := re.fullmatch(r"width: ([\d.]+)%", one.get("style", "")))
    ]
    assert sum(widths) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize("name", RECORDINGS[::4])
def test_every_specification_compiles(name: str) -> None:
    for key, spec in json.loads(Source(page_of(name)).scripts[0]).items():
        compiled = vl_convert.vegalite_to_vega(spec)
        assert compiled["marks"], key


def test_the_style_sheet_asks_for_nothing() -> None:
    for name in ("style.css", "report.html", "draw.js"):
        text = bundle.file(name)
        assert "http:" not in text.replace("http-equiv", "")
        assert "https:" not in text
        assert "@import" not in text
        assert "url(" not in text


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=25)
@given(diagnoses)
def test_any_diagnosis_makes_a_whole_page(diagnosis: Diagnosis) -> None:
    assert_closed_world(Source(html.render(Material(diagnosis=diagnosis, title="x"))))


def test_a_saved_diagnosis_says_what_it_has_not(tmp_path: Path) -> None:
    path = tmp_path / "diagnosis.json"
    path.write_bytes(to_json(recording("nchw").diagnosis))
    text = " ".join(Source(html.render(load([str(path)]))).text.split())
    assert "holds means only" in text
    assert recording("nchw").diagnosis.verdict.text in text


def test_missing_counters_are_said_to_be_missing(tmp_path: Path) -> None:
    for path in (FIXTURES / "nchw.before").iterdir():
        if path.name != "host.jsonl":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    lines = (FIXTURES / "nchw.before" / "host.jsonl").read_text(encoding="utf-8").splitlines()
    bare = [json.dumps({**json.loads(line), "gpu": None}) for line in lines]
    (tmp_path / "host.jsonl").write_text("\n".join(bare) + "\n", encoding="utf-8")
    text = " ".join(Source(html.render(load([str(tmp_path)]))).text.split())
    assert "tensor cores" not in text
    assert "CPUs in use by the run" in text
    (tmp_path / "host.jsonl").unlink()
    assert "was not sampled" in " ".join(Source(html.render(load([str(tmp_path)]))).text.split())


def test_the_saved_verdict_is_the_one_that_is_shown(tmp_path: Path) -> None:
    for path in (FIXTURES / "nchw.before").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    said = recording("nchw").diagnosis
    other = msgspec.structs.replace(said, verdict=msgspec.structs.replace(said.verdict, text="As it was said then."))
    (tmp_path / "diagnosis.json").write_bytes(to_json(other))
    assert "As it was said then." in html.render(load([str(tmp_path)]))

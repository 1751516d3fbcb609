"""A trial's folder as a report: what was measured is marked, with its interval, and nothing else is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pictures_help import FIXTURES, PAYLOADS, arm, trial
from pictures_source import Source, assert_closed_world

from underfed.errors import UsageError
from underfed.pictures import html, markdown
from underfed.pictures.material import load


def test_a_measured_fix_is_marked_with_its_interval(tmp_path: Path) -> None:
    material = load([str(trial(tmp_path / "t", arm()))])
    source = Source(html.render(material))
    assert_closed_world(source)
    text = " ".join(source.text.split())
    assert "measured 5.52x (5.31 to 5.74)" in text
    assert "Tried and measured" in text
    (dot,) = [one for tag, one in source.found if tag == "circle"]
    (low, high) = next((one["x1"], one["x2"]) for _, one in source.found if one.get("class") == "seen" and "x1" in one)
    assert float(low) < float(dot["cx"]) < float(high) <= 200
    assert "(measured)" in markdown.render(material.diagnosis)
    assert material.log is not None, "the first run is not drawn"


def test_what_was_not_measured_is_not_marked(tmp_path: Path) -> None:
    plain = load([str(FIXTURES / "workers_few.before")])
    crashed = arm(outcome="crashed", text="ended with exit code 1", gain=None, truth=None, step_ms=None)
    other = arm("threads=1", None)
    for number, arms in enumerate([(crashed,), (other,), ()]):
        material = load([str(trial(tmp_path / str(number), *arms))])
        assert material.diagnosis.findings == plain.diagnosis.findings
        source = Source(html.render(material))
        assert not [one for tag, one in source.found if tag == "circle"]
        assert ("not measured" in source.text) == (arms == (crashed,))


def test_names_in_a_trial_are_text(tmp_path: Path) -> None:
    names = [arm(payload, "T4", text=payload) for payload in PAYLOADS]
    source = Source(html.render(load([str(trial(tmp_path / "t", *names, text=PAYLOADS[0]))])))
    assert_closed_world(source)
    assert "window.pwned=1" in source.text


@pytest.mark.parametrize("wrong", ["", "{", "[]", '{"schema": "underfed.trial/9", "folder": "x", "pairs": 1}'])
def test_a_trial_that_cannot_be_read_is_refused(wrong: str, tmp_path: Path) -> None:
    folder = trial(tmp_path / "t")
    (folder / "trial.json").write_text(wrong)
    with pytest.raises(UsageError, match="trial"):
        load([str(folder)])


def test_a_trial_whose_first_run_is_gone_is_no_recording(tmp_path: Path) -> None:
    folder = trial(tmp_path / "t")
    shutil.rmtree(folder / "00-first")
    with pytest.raises(UsageError):
        load([str(folder)])
    assert json.loads((folder / "trial.json").read_bytes())["pairs"] == 4

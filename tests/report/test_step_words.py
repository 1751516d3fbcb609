"""A step that was only estimated is never called measured: in the card, the page, Markdown and a notebook alike."""

from __future__ import annotations

from pathlib import Path

import pytest

import underfed
from underfed.pictures import html, markdown
from underfed.pictures.material import load

ZOO = Path(__file__).resolve().parents[3] / "shared" / "zoo"
MEASURED, ESTIMATED = "wall clock, no profiler", "estimated without profiler"


@pytest.mark.parametrize(("step_ms", "words", "not_words"), [(None, ESTIMATED, MEASURED), (250.0, MEASURED, ESTIMATED)])
def test_the_step_of_a_trace_says_how_it_is_known(step_ms: float | None, words: str, not_words: str) -> None:
    path = ZOO / "store_slow" / "before" / "trace.json.gz"
    if not path.is_file():
        pytest.skip(f"no shared traces beside the repository ({ZOO})")
    material = load([str(path)], step_ms)
    found = underfed.read(path, step_ms=step_ms)
    for text in (html.render(material), markdown.render(material.diagnosis), str(found), found._repr_html_()):
        assert words in text
        assert not_words not in text

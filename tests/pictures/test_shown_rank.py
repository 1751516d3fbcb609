"""Of several ranks the report draws the one that its verdict speaks of, and says so."""

from __future__ import annotations

import re
from pathlib import Path

from pictures_help import planted, recording, shared
from pictures_source import Source

from underfed.pictures import html
from underfed.pictures.material import load


def test_a_recording_of_a_slow_and_a_quick_rank_shows_the_slow_one(tmp_path: Path) -> None:
    material = planted("ddp_slow_rank", tmp_path)
    assert "rank 1, which the others wait for" in material.diagnosis.verdict.text
    assert material.shown_rank == 1
    text = " ".join(Source(html.render(material)).text.split())
    assert "Steps as they ran, rank 1" in text
    each = re.search(r"The loader, rank 1 Time to make each batch\. \d+ batches, ([\d.]+) ms each", text)
    assert each is not None
    # The planted fault: rank 1 sleeps in its dataset; the other rank needs a tenth of that.
    assert float(each[1]) > 20
    assert material.diagnosis.step.wait_ms.data is not None
    assert abs(float(each[1]) - material.diagnosis.step.wait_ms.data) < 0.1 * float(each[1])


def test_several_traces_say_whose_timeline_it_is() -> None:
    material = load(shared("traces/param/dlrm_8rank_worker*.json.gz"))
    assert material.shown_rank in material.ranks
    assert f"Inside a step, rank {material.shown_rank}" in html.render(material)


def test_a_single_process_has_no_rank() -> None:
    assert recording("nchw").shown_rank is None
    assert ", rank" not in html.render(recording("nchw"))

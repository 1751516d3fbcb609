"""Rich display: real notebooks executed by a real kernel, hostile names, any Diagnosis."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from nbclient import NotebookClient

import underfed
from underfed.diagnosis import Diagnosis, Finding, Fix, Observation, Step, Subject, Verdict, Waits
from underfed.recording.read import Recording

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
from strategies import diagnoses

VOID = {"br", "hr"}
HOSTILE = (
    "</style><script>alert(1)</script><img src=x onerror=alert(2)>\" onmouseover='x' \u202egnp.exe \x1b[31m `${1}`"
)

CELLS = [
    "import time, torch, underfed\ntorch.set_num_threads(1)",
    """class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(8)""",
    """model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(Rows(), batch_size=4)""",
    """with underfed.watch() as w:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()""",
    "w.diagnosis",
    "w.recording",
    "w",
    "w.recording.frame('steps').shape[0], sum(type(s).__name__ == 'ZMQInteractiveShell' for s in [get_ipython()])",
]


class Parsed(HTMLParser):
    """Tags, attributes and text as a parser of somebody else sees them; every element is closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


def assert_harmless(html: str) -> Parsed:
    seen = Parsed(html)
    allowed = {"div", "style", "p", "b", "i", "table", "tr", "th", "td", "span", "ol", "ul", "li", "br", "code"}
    for tag, attributes in seen.tags:
        assert tag in {*allowed, "details", "summary"}
        assert set(attributes) <= {"class", "style", "role", "aria-label"}, attributes
    assert len(html) < 40_000
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", seen.text)
    return seen


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict]]:
    """Execute the notebook in a kernel of this Python and return the outputs of each cell."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    kernels = folder / "kernels" / "here"
    kernels.mkdir(parents=True)
    words = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (kernels / "kernel.json").write_text(f'{{"argv": {words}, "display_name": "here", "language": "python"}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        NotebookClient(book, timeout=300, kernel_name="here", resources={"metadata": {"path": str(folder)}}).execute()
    return [cell.outputs for cell in book.cells]


def test_a_notebook_shows_the_verdict_and_names_its_cells(outputs: list[list[dict]]) -> None:
    (shown,) = outputs[4]
    seen = assert_harmless(shown.data["text/html"])
    assert "data-bound" in seen.text
    assert re.search(r"In\[2\]:\d", seen.text), seen.text
    assert "ipykernel_" not in seen.text
    assert shown.data["text/plain"].startswith("underfed: data-bound")
    assert re.search(r"In\[[23]\]:\d", shown.data["text/plain"])
    assert not outputs[3], "nothing is printed into the training's cell"


def test_a_notebook_shows_what_was_recorded(outputs: list[list[dict]]) -> None:
    (shown,) = outputs[5]
    seen = assert_harmless(shown.data["text/html"])
    assert "training processes1" in seen.text
    assert outputs[6][0].data["text/html"].startswith("<div")
    assert outputs[7][0].data["text/plain"].endswith(", 1)")


def hostile() -> Diagnosis:
    finding = Finding(
        rule=HOSTILE,
        name=HOSTILE,
        stage="dataloader",
        bound="data",
        numerics="semantic",
        summary=HOSTILE,
        where=HOSTILE,
        evidence=[Observation(source="agent", text=HOSTILE, value=1.0, unit=HOSTILE)],
        fix=Fix(text=HOSTILE, code=HOSTILE, try_=HOSTILE),
    )
    return Diagnosis(
        subject=Subject(kind="run", paths=[HOSTILE], device=HOSTILE, steps=5),
        verdict=Verdict(bound="data", cause=HOSTILE, confidence="low", text=HOSTILE, settle=HOSTILE),
        step=Step(ms=10.0, device_ms=4.0, wait_ms=Waits(data=6.0)),
        findings=[finding],
        limits=[HOSTILE],
    )


def test_hostile_names_stay_text() -> None:
    seen = assert_harmless(hostile()._repr_html_())
    assert "<script>alert(1)</script>" in seen.text
    assert "\x1b" not in repr(hostile()) + str(hostile())
    empty = Recording(folder=Path(f"/{HOSTILE}"), header={"started": HOSTILE}, processes=[], workers=[], host=[])
    assert_harmless(empty._repr_html_())
    assert "\x1b" not in repr(empty)


@settings(max_examples=60, deadline=None)
@given(diagnoses)
def test_any_diagnosis_can_be_shown(diagnosis: Diagnosis) -> None:
    assert_harmless(diagnosis._repr_html_())
    assert "\n" not in repr(diagnosis)
    assert diagnosis._repr_mimebundle_(include=None, exclude=None)["text/plain"] == str(diagnosis)


def test_colours_are_there_for_both_themes() -> None:
    html = hostile()._repr_html_()
    assert '[data-jp-theme-light="false"]' in html
    assert "prefers-color-scheme:dark" in html
    assert underfed.Diagnosis is Diagnosis

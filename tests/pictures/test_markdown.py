"""Markdown of any Diagnosis, read back by a parser of somebody else: text stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pictures_help import PAYLOADS, recording

from underfed.pictures import markdown
from underfed.report.text import clean

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
LINES = st.one_of(
    st.text(max_size=60),
    st.sampled_from([*PAYLOADS, "@someone", "#12", "GH-12", "http://x.y/z", "www.x.y", "[a](b)", "![a](b)", "&amp;"]),
    st.lists(st.sampled_from(["`", "``", "*", "_", "|", "\\", "<b>", "- a", "1. a", "> q", "# h", "~~a~~", "$x$"])).map(
        " ".join
    ),
)


class Text(HTMLParser):
    """Text and elements of HTML."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.elements: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def rendered(source: str) -> Text:
    found = Text()
    found.feed(READER.render(source))
    return found


@given(LINES)
def test_prose_is_the_same_text_again(text: str) -> None:
    found = rendered("said: " + markdown.prose(text))
    assert found.elements <= {"p"}
    assert found.text.strip() == f"said: {clean(text, ascii_only=False)}".strip()


@given(LINES)
def test_code_is_the_same_text_again(text: str) -> None:
    found = rendered("at " + markdown.code(text))
    assert found.elements == {"p", "code"}
    # A reader drops one space on both sides of a span that begins and ends with one; none is left inside by `clean`.
    assert found.text.strip().removeprefix("at").strip() == clean(text, ascii_only=False).strip()


@given(LINES)
def test_a_block_of_code_ends_where_it_ends(text: str) -> None:
    found = rendered("\n".join(["- a", *markdown.fenced(text, "  "), "- b"]))
    assert found.elements <= {"ul", "li", "pre", "code", "p"}
    assert found.text.rstrip().endswith("b")


@given(LINES)
def test_nobody_is_mentioned_and_nothing_is_linked(text: str) -> None:
    said = markdown.prose(text)
    assert not re.search(r"@\w", said)
    assert not re.search(r"#\d|(?<!-->)://", said)


def test_a_recording_has_its_verdict_its_budget_and_its_fix() -> None:
    diagnosis = recording("ckpt_stall").diagnosis
    found = rendered(markdown.render(diagnosis))
    assert diagnosis.verdict.text in found.text
    assert {"table", "ol", "h3"} <= found.elements
    assert "X6 checkpoint-on-training-thread" in found.text
    assert found.elements <= set("p h3 table thead tbody tr th td strong ol ul li code pre details summary sub".split())

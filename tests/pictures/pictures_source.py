"""The source of a page as a parser of somebody else reads it, and what must never be in it."""

from __future__ import annotations

import base64
import hashlib
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "line", "rect", "path"}


class Source(HTMLParser):
    """Elements with their attributes, the scripts, and whether every element is closed where it was opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts[-1] += data
        elif "style" not in self._open:
            self.text += data


def assert_closed_world(source: Source) -> None:
    for tag, attributes in source.found:
        assert tag not in {"iframe", "object", "embed", "img", "form", "base", "a"} or attributes == {
            "class": "skip",
            "href": "#main",
        }
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in {"src", "href", "action", "srcset", "poster", "xlink:href"}:
                assert value.startswith(("#", "data:,")), (tag, value)
    assert len(source.scripts) == 2
    policy = next(one["content"] for tag, one in source.found if tag == "meta" and "http-equiv" in one)
    digest = base64.b64encode(hashlib.sha256(source.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy

"""The site: it builds with every link checked, holds a page a rule, and loads nothing from anywhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from underfed.audit.registry import RULES as AUDIT
from underfed.playbook.registry import RULES

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("zensical", reason="the site's builder is not installed")


class Page(HTMLParser):
    """What a built page loads, and its text."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "img", "iframe", "source", "video", "audio", "embed"} and given.get("src"):
            self.loads.append(given["src"] or "")
        if tag == "link" and given.get("rel") not in {"canonical", "next", "prev", "alternate"}:
            self.loads.append(given.get("href") or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / "tools/docs_site.py"), "--out", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target / "site"


def test_every_page_of_the_docs_is_there(site: Path) -> None:
    wanted = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"rules", "audit-rules"}
    assert wanted | {"contributing", "changes"} <= {page.stem for page in site.glob("*.html")}


def test_every_rule_has_a_page_with_its_sections(site: Path) -> None:
    for rule in (*RULES, *AUDIT):
        text = " ".join("".join(Page(site / f"rules/{rule.id}.html").words).split())
        assert rule.name in text
        for heading in ("Why it costs", "Fix", "When it stays silent", "Evidence and tests"):
            assert heading in text, f"{rule.id}: {heading}"
        assert "\\" not in text.partition("Evidence and tests")[0].replace("\\.", ""), f"{rule.id}: markup is left over"
    index = " ".join("".join(Page(site / "rules/index.html").words).split())
    for rule in (*RULES, *AUDIT):
        assert rule.name in index


def test_every_page_can_be_reached_by_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    linked = set(re.findall(r'href="(?:\./)?([\w/.-]+\.html)"', home))
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")} - {"404.html"}
    assert built - linked == set()


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        outside = [link for link in Page(page).loads if re.match(r"(https?:)?//", link)]
        assert outside == [], page.name
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style.name


def test_parts_of_the_readme_are_put_in(site: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    costs = readme.partition("\n## What watching costs\n")[2].partition("\n## ")[0]
    row = next(line for line in costs.splitlines() if re.match(r"\| [\d.]+ ms \|", line))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    text = "".join(Page(site / "overhead.html").words)
    for cell in cells:
        assert cell in text
    assert "On GitHub:" not in text
    assert "first things first" in "".join(Page(site / "card.html").words)


@pytest.mark.parametrize("link", ["nowhere.md", "run.md#no-such-heading", "rules.md#t999-no-such-rule"])
def test_a_link_that_leads_nowhere_fails_the_build(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from docs_site import assemble, build

    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    with (tmp_path / "docs/index.md").open("a", encoding="utf-8") as page:
        page.write(f"\n[somewhere]({link})\n")
    assemble(tmp_path / "site", tmp_path / "docs")
    assert build(tmp_path / "site") != 0


def test_a_part_that_is_asked_for_and_not_there_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from docs_site import section

    text = "# a\n\none\n\n## b\n\ntwo\n\n```\n# no heading\n```\n\n### c\n\nthree\n\n## d\n\nfour\n"
    assert section(text, "b") == "two\n\n```\n# no heading\n```\n\n### c\n\nthree\n"
    with pytest.raises(SystemExit, match="no heading"):
        section(text, "no-heading")


def test_it_opens_from_a_disk_and_its_search_finds_without_a_network(site: Path) -> None:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=program, args=[*flags, "--disable-gpu"])
        try:
            page = browser.new_page()
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
            page.on("request", lambda one: wrong.append(one.url) if one.url.startswith("http") else None)
            page.goto((site / "rules/T4.html").as_uri())
            page.keyboard.press("Control+k")
            page.get_by_role("searchbox").or_(page.locator("input[type=text]:visible")).first.fill(
                "checkpoint-on-training"
            )
            page.get_by_text(re.compile(r"^[1-9]\d* results?$")).wait_for()
            page.keyboard.press("Escape")
            page.get_by_role("link", name="T5", exact=True).first.click()
            page.wait_for_url("**/rules/T5.html")
            assert wrong == []
        finally:
            browser.close()

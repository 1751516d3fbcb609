"""Reports in a real browser: opened from a file, charts drawn, text reachable, nothing of a hostile name executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pictures_help import Opened, arm, browser, hostile_recording, page_of, recording, shared, trial

from underfed.pictures import html
from underfed.pictures.material import load

DRAWN = [
    *("ckpt_stall", "healthy_resnet"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("workers_few", "respawn", "tiny_ops", "nchw")),
]
RANKS = {"dlrm": ("traces/param/dlrm_8rank_worker*.json.gz",), "sampled": ("traces/hta/trace_filter__sampled_rank-*",)}


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def opened(chrome: Any) -> Iterator[Opened]:
    context = chrome.new_context(viewport={"width": 1100, "height": 900})
    yield Opened(context.new_page())
    context.close()


def saved(folder: Path, text: str) -> Path:
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def assert_sound(opened: Opened, path: Path) -> None:
    """Nothing was complained about, nothing but the file was asked for, and every chart has marks."""
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [path.as_uri()]
    charts = opened.page.query_selector_all("figure[data-chart]")
    for chart in charts:
        assert chart.get_attribute("data-drawn") == "yes", chart.get_attribute("id")
        assert len(chart.query_selector_all(".holder svg path")) >= 3, chart.get_attribute("id")


@pytest.mark.parametrize("name", DRAWN)
def test_a_recording_is_drawn_and_printed(name: str, opened: Opened, tmp_path: Path) -> None:
    path = saved(tmp_path, page_of(name))
    opened.open(path)
    assert_sound(opened, path)
    assert len(opened.page.query_selector_all("figure[data-chart]")) >= 2
    text = opened.page.inner_text("main")
    diagnosis = recording(name).diagnosis
    first = opened.page.query_selector("main > section")
    assert diagnosis.verdict.text in first.inner_text(), "the report does not open on the verdict"
    for finding in diagnosis.findings:
        if finding.helps_now:
            assert f"{finding.rule} {finding.name}" in text
    frame = opened.page.eval_on_selector(".bar", "one => one.clientWidth")
    parts = opened.page.eval_on_selector_all(".bar span", "all => all.map(one => one.getBoundingClientRect().width)")
    assert sum(parts) == pytest.approx(frame, rel=0.01), "the bar of the budget does not fill its frame"
    data = opened.page.pdf(prefer_css_page_size=True, print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", data)) == 2, "it does not print on two pages"
    assert opened.complaints == []


@pytest.mark.parametrize("name", RANKS)
def test_traces_of_several_ranks_are_drawn(name: str, opened: Opened, tmp_path: Path) -> None:
    paths = shared(*RANKS[name])
    path = saved(tmp_path, html.render(load(paths)))
    opened.open(path)
    assert_sound(opened, path)
    cells = opened.page.query_selector_all("#ranks tbody td:nth-child(2)")
    assert len(cells) == len(paths)
    caused = [0.0 if cell.inner_text() == "?" else float(cell.inner_text()) for cell in cells]
    assert caused == sorted(caused, reverse=True), "late ranks do not come first"


def test_a_chart_zooms_by_keyboard_wheel_and_mouse(opened: Opened, tmp_path: Path) -> None:
    opened.open(saved(tmp_path, page_of("ckpt_stall")))
    page = opened.page
    span = "one => [Number(one.dataset.lo), Number(one.dataset.hi)]"
    page.focus("#steps-chart button[data-do=in]")
    page.keyboard.press("Enter")
    low, high = page.eval_on_selector("#steps-chart", span)
    page.keyboard.press("Enter")
    lower, higher = page.eval_on_selector("#steps-chart", span)
    assert (higher - lower) == pytest.approx((high - low) / 2)
    box = page.query_selector("#steps-chart .holder").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
    page.keyboard.down("Shift")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Shift")
    page.wait_for_function(f"Number(document.querySelector('#steps-chart').dataset.hi) < {higher}")
    page.click("#steps-chart button[data-do=all]")
    assert page.eval_on_selector("#steps-chart", span)[0] <= low
    assert opened.complaints == []


def test_all_of_it_is_reached_by_the_tab_key_in_the_order_of_the_page(opened: Opened, tmp_path: Path) -> None:
    opened.open(saved(tmp_path, page_of("workers_few")))
    page = opened.page
    wanted = page.eval_on_selector_all(
        "a[href], button, summary, [tabindex='0']",
        "all => all.filter(one => one.checkVisibility()).map((one, at) => (one.dataset.at = at, at))",
    )
    reached = []
    for _ in wanted:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("Number(document.activeElement.dataset.at ?? -1)"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "the focus cannot be seen"
    assert reached == wanted
    assert len(wanted) > 25
    page.focus("#lanes-typical summary")
    page.keyboard.press("Enter")
    assert page.query_selector("#lanes-typical details").get_attribute("open") is not None
    page.focus("#theme")
    before = page.evaluate("getComputedStyle(document.body).color")
    page.keyboard.press("Space")
    assert page.evaluate("getComputedStyle(document.body).color") != before
    assert opened.complaints == []


def test_hovering_shows_the_step(opened: Opened, tmp_path: Path) -> None:
    opened.open(saved(tmp_path, page_of("ckpt_stall")))
    holder = opened.page.query_selector("#steps-chart .holder")
    holder.scroll_into_view_if_needed()
    box = holder.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
    opened.page.mouse.move(box["x"] + box["width"] / 2 + 3, box["y"] + 82)
    opened.page.wait_for_selector("#vg-tooltip-element.visible")
    assert re.search(r"step\W+\d+", opened.page.inner_text("#vg-tooltip-element"))


def test_a_trial_prints_what_was_measured_on_its_first_page(opened: Opened, tmp_path: Path) -> None:
    folder = trial(tmp_path / "t", arm(), arm("X12", None), arm("threads=1", None))
    path = saved(tmp_path, html.render(load([str(folder)])))
    opened.open(path)
    assert_sound(opened, path)
    dot = opened.page.eval_on_selector("circle.seen", "one => one.getBoundingClientRect().width")
    assert dot > 5
    data = opened.page.pdf(prefer_css_page_size=True, print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", data)) == 2


def ranks_page() -> str:
    return html.render(load(shared(*RANKS["dlrm"])))


@pytest.mark.parametrize(
    ("theme", "text"),
    [
        ("light", lambda: page_of("ckpt_stall")),
        ("dark", lambda: page_of("respawn")),
        ("dark", ranks_page),
    ],
    ids=["light", "dark", "ranks"],
)
def test_nothing_stands_in_the_way_of_a_screen_reader(
    theme: str, text: Callable[[], str], chrome: Any, tmp_path: Path
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    # The checker has to run scripts of its own, which the report's policy would refuse.
    context = chrome.new_context(viewport={"width": 1100, "height": 900}, color_scheme=theme, bypass_csp=True)
    opened = Opened(context.new_page())
    opened.open(saved(tmp_path, text()))
    found = axe.Axe().run(opened.page)
    broken = {one["id"]: [node["target"] for node in one["nodes"]][:3] for one in found.response["violations"]}
    context.close()
    assert broken == {}


@pytest.mark.parametrize("width", [360, 1100])
def test_a_page_is_never_wider_than_its_window(width: int, chrome: Any, tmp_path: Path) -> None:
    context = chrome.new_context(viewport={"width": width, "height": 800})
    opened = Opened(context.new_page())
    opened.open(saved(tmp_path, page_of("workers_few")))
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_colours_that_mean_something_stay_where_the_system_sets_the_others(chrome: Any, tmp_path: Path) -> None:
    context = chrome.new_context(forced_colors="active")
    opened = Opened(context.new_page())
    opened.open(saved(tmp_path, page_of("workers_few")))
    paint = "all => all.map(one => getComputedStyle(one).backgroundColor)"
    colours = opened.page.eval_on_selector_all(".budget tbody .swatch", paint)
    assert len(set(colours)) == len(colours) >= 8
    context.close()


def test_charts_follow_the_window(opened: Opened, tmp_path: Path) -> None:
    opened.open(saved(tmp_path, page_of("ckpt_stall")))
    before = opened.page.eval_on_selector("#steps-chart svg", "one => one.getBoundingClientRect().width")
    opened.page.set_viewport_size({"width": 700, "height": 800})
    opened.page.wait_for_function(
        f"document.querySelector('#steps-chart svg').getBoundingClientRect().width < {before} - 100"
    )
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 700


def test_without_scripts_the_figures_are_still_there(chrome: Any, tmp_path: Path) -> None:
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(saved(tmp_path, page_of("ckpt_stall")).as_uri())
    assert recording("ckpt_stall").diagnosis.verdict.text in page.inner_text("main")
    assert page.query_selector_all("#steps-chart details tbody tr")
    context.close()


def test_a_hostile_recording_executes_nothing(opened: Opened, tmp_path: Path) -> None:
    folder = hostile_recording(tmp_path / "<img src=x onerror=window.pwned=1>")
    text = html.render(load([str(folder)]))
    assert "window.pwned" in text, "the names did not reach the page"
    path = saved(tmp_path, text)
    opened.open(path)
    assert_sound(opened, path)
    for where in opened.page.query_selector_all("#steps-chart .holder, #lanes-typical .holder, #fetch-chart .holder"):
        where.scroll_into_view_if_needed()
        box = where.bounding_box()
        for share in (0.2, 0.5, 0.8):
            opened.page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
    assert opened.page.evaluate("window.pwned") is None
    assert opened.complaints == []
    assert opened.page.query_selector_all("img") == []

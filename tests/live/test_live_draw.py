"""The picture of any state fits any terminal, as a terminal's own library counts columns, and steers nothing."""

from __future__ import annotations

import string

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcwidth

from underfed.live_view.draw import page, status
from underfed.live_view.marks import bar, spark
from underfed.live_view.state import Change, Judged, State, Track
from underfed.live_view.terminal import paint
from underfed.report.page import Line

HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[31m\u202eevil\u202c\x9b1A\r\n\t漢字\U0001f600\ud800" + "x" * 300

names = st.text(max_size=40) | st.just(HOSTILE) | st.text(string.ascii_letters + "/.", min_size=200, max_size=400)
share = st.floats(0, 1)
values = st.lists(st.none() | st.floats(0, 1e6), max_size=400).map(tuple)
bounds = st.sampled_from(("data", "host", "compute", "comms", "unknown"))
parts = st.lists(st.tuples(st.sampled_from(("device", "data", "sync", "stall", "comms", "other")), share), max_size=8)
judged = st.builds(
    Judged,
    at=st.just(1e9),
    bound=bounds,
    words=names,
    confidence=st.sampled_from(("high", "medium", "low")),
    text=names,
    cause=st.none() | names,
    name=names,
    fix=st.none() | names,
    settle=st.none() | names,
    parts=parts.map(tuple),
)
tracks = st.builds(Track, names, values, names, st.none() | st.floats(0, 100))
states = st.builds(
    State,
    title=names,
    hint=st.just("q quits"),
    began=st.just(1e9),
    at=st.floats(1e9, 1e9 + 1e6),
    stepping=st.booleans(),
    recent=st.lists(st.floats(0, 1e7), max_size=64).map(tuple),
    stepped_at=st.none() | st.floats(1e9, 1e9 + 1e6),
    step_track=values,
    tracks=st.lists(tracks, max_size=14).map(tuple),
    judged=st.none() | judged,
    changes=st.lists(st.builds(Change, st.floats(0, 2e9), bounds, names, st.none() | names), max_size=50).map(tuple),
    changed=st.integers(0, 10**6),
)


def width(line: Line) -> int:
    return sum(max(0, wcwidth(char)) for text, _ in line for char in text)


@settings(deadline=None, max_examples=150)
@given(states, st.integers(1, 250), st.integers(1, 70), st.booleans())
def test_no_line_is_wider_and_no_page_longer_than_the_terminal(
    state: State, columns: int, rows: int, plain: bool
) -> None:
    lines = page(state, columns, rows, ascii_only=plain)
    assert len(lines) <= rows
    for line in [*lines, status(state, columns, ascii_only=plain)]:
        text = "".join(part for part, _ in line)
        assert width(line) <= columns, text
        assert text.isprintable() or not text, ascii(text)
        assert not plain or text.isascii(), text


@settings(deadline=None, max_examples=50)
@given(states)
def test_an_emulator_shows_the_page_as_it_is_and_nothing_moves(state: State) -> None:
    lines = page(state, 80, 24, ascii_only=True)
    screen = pyte.Screen(80, 24)
    stream = pyte.Stream(screen)
    screen.reset_mode(pyte.modes.DECAWM >> 5, private=True)
    stream.feed("\r\n".join(paint(lines, colour=True)))
    assert [line.rstrip() for line in screen.display[: len(lines)]] == [
        "".join(text for text, _ in line).rstrip() for line in lines
    ]
    assert not screen.title


def full(**changed: object) -> State:
    verdict = Judged(
        at=1e9,
        bound="data",
        words="data-bound (the loop waits for its input)",
        confidence="high",
        text="The training thread waits for its input for 41 % of the time, most often at train.py:17.",
        cause="T4",
        name="too-few-loader-workers",
        fix="T4: num_workers=8",
        parts=(("device", 0.5), ("data", 0.41), ("sync", 0.05), ("launch", 0.04)),
    )
    known = {
        "title": "run  python train.py",
        "began": 1e9,
        "at": 1e9 + 100,
        "stepping": True,
        "recent": (12.0,) * 10,
        "stepped_at": 1e9 + 100,
        "step_track": (12.0, 13.0, None, 12.0),
        "tracks": tuple(
            Track(name, (0.5, None, 1.0), text, 1.0)
            for name, text in (
                ("CPU", "1.9 of 2 used"),
                ("quota", "throttled in 12 % of periods"),
                ("GPU 0", "util 83 %, SM 41 %"),
                (" clock", "1980/1980 MHz"),
                (" power", "412/700 W"),
            )
        ),
        "judged": verdict,
        "changes": (Change(1e9, "unknown", "cannot tell", None), Change(1e9 + 5, "data", "data-bound", "T4")),
        "changed": 2,
    }
    return State(**{**known, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_page_of_24_rows_holds_all_that_users_are_promised(columns: int, plain: bool) -> None:
    shown = "\n".join("".join(text for text, _ in line) for line in page(full(), columns, 24, ascii_only=plain))
    for wanted in (
        "data-bound",
        "since",
        "high confidence",
        "T4 too-few-loader-workers",
        "train.py:17",
        "num_workers=8",
        "device 50 %",
        "data 41 %",
        "launch 4 %",
        "12 ms, 83.3 steps/s",
        "1.9 of 2 used",
        "throttled in 12 %",
        "SM 41 %",
        "1980/1980 MHz",
        "412/700 W",
        "changes",
        "cannot tell",
    ):
        assert wanted in shown, f"{wanted}\n{shown}"


@pytest.mark.parametrize(("columns", "rows"), [(20, 24), (40, 10), (60, 8), (80, 3), (12, 2), (1, 1)])
def test_a_small_terminal_keeps_the_verdict_longest(columns: int, rows: int) -> None:
    shown = "\n".join("".join(text for text, _ in line) for line in page(full(), columns, rows, ascii_only=True))
    assert "data-bound"[:columns] in shown


def test_a_run_that_makes_no_more_steps_is_told() -> None:
    late = full(at=1e9 + 400.0)
    for lines in (page(late, 80, 24, ascii_only=True), [status(late, 79, ascii_only=True)]):
        assert "no step for 300 s" in "\n".join("".join(text for text, _ in line) for line in lines)


@given(parts, st.integers(0, 200), st.booleans())
def test_a_bar_never_overflows_and_fills_where_its_parts_add_up(
    found: list[tuple[str, float]], room: int, plain: bool
) -> None:
    drawn = sum(len(text) for text, _ in bar(found, room, ascii_only=plain))
    total = sum(value for _, value in found)
    assert drawn <= room
    assert abs(drawn - room * min(1.0, total)) <= 1


@given(values, st.integers(0, 100), st.booleans())
def test_a_sparkline_has_a_mark_a_reading_and_a_blank_for_none(
    found: tuple[float | None, ...], room: int, plain: bool
) -> None:
    drawn = spark(found, room, top=None, ascii_only=plain)
    shown = found[-room:] if room else ()
    assert len(drawn) == len(shown)
    assert [char == " " for char in drawn] == [value is None for value in shown]
    levels = "_.:-=+*#" if plain else "▁▂▃▄▅▆▇█"
    known = [(value, levels.index(char)) for value, char in zip(shown, drawn, strict=True) if value is not None]
    assert [level for _, level in sorted(known)] == sorted(level for _, level in known)

"""Whatever a Diagnosis holds, what is shown of it is safe, narrow, and adds up."""

from __future__ import annotations

import io
import math
import os
import re
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len
from strategies import diagnoses, text

from underfed.diagnosis import Diagnosis, Finding, Fix, Observation, Step, Subject, Verdict, Waits, from_json, to_json
from underfed.report import card, first
from underfed.report.budget import rows
from underfed.report.text import cells, clean, wrap

SGR = re.compile(r"\x1b\[[0-9;]*m")
WAITS = Waits.__struct_fields__
ANY = settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def assert_tame(shown: str) -> None:
    for line in shown.split("\n"):
        assert cell_len(line) <= 80, line
        bad = [char for char in line if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}]
        assert not bad, (line, bad)


@ANY
@given(diagnoses, st.one_of(st.none(), text))
def test_plain_card_is_ascii_within_80_columns_without_control_characters(
    diagnosis: Diagnosis, recording: str | None
) -> None:
    shown = card.render(diagnosis, recording=recording)
    assert shown.isascii()
    assert_tame(shown)


def test_names_made_to_flood_a_terminal_are_cut() -> None:
    flood = "word " * 100_000
    fact = Observation(source="agent", text=flood)
    fix = Fix(text=flood, code=f"{flood}\n" * 9)
    kinds = {"stage": "free", "bound": "host", "numerics": "exact"}
    found = Finding(rule=flood, name=flood, summary=flood, where=flood, evidence=[fact] * 99, fix=fix, **kinds)
    aside = replace(found, helps_now=False, note=flood)
    diagnosis = Diagnosis(
        subject=Subject(kind="run", paths=[], device=flood),
        verdict=Verdict(bound="host", cause=flood, confidence="low", text=flood),
        findings=[found] * 99 + [aside] * 99,
        limits=[flood] * 99,
    )
    shown = card.render(diagnosis)
    assert_tame(shown)
    assert shown.count("\n") < 250
    assert shown.count("and 94 more in the JSON") == 1
    assert shown.count("and 91 more in the JSON") == 2


@ANY
@given(diagnoses, st.one_of(st.none(), text))
def test_coloured_card_holds_no_escape_but_colours(diagnosis: Diagnosis, recording: str | None) -> None:
    stream = Terminal()
    before = {name: os.environ.pop(name, None) for name in ("NO_COLOR", "TERM")}
    os.environ["TERM"] = "xterm-256color"
    try:
        card.write(diagnosis, stream, recording=recording)
        first.write(diagnosis, stream)
    finally:
        os.environ.pop("TERM")
        os.environ.update({name: value for name, value in before.items() if value is not None})
    shown = stream.getvalue()
    assert SGR.search(shown)
    assert_tame(SGR.sub("", shown))


@ANY
@given(diagnoses)
def test_first_verdict_is_two_to_four_ascii_lines(diagnosis: Diagnosis) -> None:
    shown = first.render(diagnosis)
    assert shown.isascii()
    assert_tame(shown)
    assert 2 <= shown.count("\n") <= 4


budget_ms = st.one_of(st.none(), st.floats(0, 400), st.floats(-1e10, 1e10), st.floats())


@ANY
@given(st.floats(1e-3, 1e6), st.lists(budget_ms, min_size=8, max_size=8))
def test_budget_rows_add_up_to_the_step_in_the_digits_shown(total: float, values: list[float | None]) -> None:
    step = Step(ms=total, device_ms=values[0], wait_ms=Waits(**dict(zip(WAITS, values[1:], strict=True))))
    *parts, whole = rows(step, device="at work", clock="a clock")
    assert whole.label == "step"
    assert sum(Decimal(row.ms) for row in parts if row.ms != "?") == Decimal(whole.ms)
    assert sum(Decimal(row.percent) for row in parts if row.percent != "?") == Decimal("100.0")


@ANY
@given(st.floats(0.1, 1e5), st.lists(st.floats(0, 1), min_size=8, max_size=8).filter(lambda shares: sum(shares) > 0.1))
def test_a_budget_that_adds_up_is_shown_as_it_is(total: float, shares: list[float]) -> None:
    values = [total * share / math.fsum(shares) for share in shares]
    step = Step(ms=total, device_ms=values[0], wait_ms=Waits(**dict(zip(WAITS, values[1:], strict=True))))
    *parts, whole = rows(step, device="at work", clock="a clock")
    assert [row.label for row in parts] == ["device", *WAITS]
    digits = len(whole.ms.partition(".")[2])
    for row, value in zip(parts, values, strict=True):
        assert abs(float(row.ms) - value) < 1.01 * 10**-digits
        assert abs(float(row.percent) - 100 * value / total) < 0.11


@ANY
@given(diagnoses)
def test_a_row_that_is_not_known_is_a_question_mark_and_never_zero(diagnosis: Diagnosis) -> None:
    step = diagnosis.step
    shown = {row.label: row for row in rows(step, device="at work", clock="a clock")}
    given_ms = {"device": step.device_ms, "step": step.ms, **{name: getattr(step.wait_ms, name) for name in WAITS}}
    for label, value in given_ms.items():
        if value is None or not math.isfinite(value):
            assert shown[label].ms == "?"
            assert shown[label].percent == "?"


@ANY
@given(text, st.integers(8, 80))
def test_wrapping_loses_nothing_and_keeps_the_width(raw: str, width: int) -> None:
    for ascii_only in (True, False):
        line = clean(raw, ascii_only=ascii_only)
        broken = wrap(line, width)
        assert all(cell_len(part) <= width for part in broken)
        assert cells(line) >= cell_len(line)
        assert "".join(broken).replace(" ", "") == line.replace(" ", "")


@ANY
@given(diagnoses)
def test_a_diagnosis_read_back_from_json_gives_the_same_card(diagnosis: Diagnosis) -> None:
    try:
        written = to_json(diagnosis)
    except UnicodeEncodeError:
        assume(False)  # JSON cannot hold a lone surrogate
    assert card.render(from_json(written)) == card.render(diagnosis)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[2J\x1b[31mtrain.py\x1b[0m:4", "train.py:4"),
        ("\x1b]0;owned\x07train.py", "train.py"),
        ("\x1b]8;;http://x\x1b\\train.py\x1b]8;;\x1b\\", "train.py"),
        ("\x9b31mtrain.py", "train.py"),
        ("\x1bPq#0\x1b\\train.py", "train.py"),
        ("\x1b(Btrain.py", "train.py"),
        ("\x1bctrain.py", "train.py"),
        ("tr\u202eain\u2066.py", "train.py"),
        ("tr\u200bain\ufeff.py", "train.py"),
        ("train\n.py\t:4", "train .py :4"),
        ("tr\x08\x7fain.py\x00", "train.py"),
        ("caf\u00e9.py", "caf\\xe9.py"),
        ("\ud800x", "x"),
    ],
)
def test_what_could_steer_a_terminal_is_gone(raw: str, shown: str) -> None:
    assert clean(raw) == shown

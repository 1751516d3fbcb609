"""`underfed explain` against the rules that are registered, through the real command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from underfed.playbook.registry import RULES
from underfed.playbook.rule import Rule
from underfed.report.rulepage import markdown, page, pattern, sections, table

HEADINGS = ["What it looks like", "Why it costs", "Fix", "When it stays silent", "Not to be confused with"]


def explain(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "underfed", "explain", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_a_rule_all_are_listed() -> None:
    done = explain()
    assert (done.returncode, done.stderr) == (0, "")
    listed = [tuple(line.split()) for line in done.stdout.splitlines() if line.startswith("  ") and line[2] != " "]
    assert listed == [(rule.id, rule.name) for rule in RULES]
    told = " ".join(done.stdout.split())
    for rule in RULES:
        assert pattern(rule) in told


def test_a_rule_is_found_by_id_and_by_name_in_any_case() -> None:
    rule = RULES[-1]
    shown = {explain(word).stdout for word in (rule.id, rule.id.lower(), rule.name, rule.name.upper())}
    assert shown == {page(rule)}


@pytest.mark.parametrize(("wanted", "near"), [("T44", "T4 "), ("worker", "workers"), ("host_sync_in_step", "X5 ")])
def test_an_unknown_rule_is_one_line_with_near_matches(wanted: str, near: str) -> None:
    done = explain(wanted)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert near in done.stderr.partition("near:")[2]


def test_an_unknown_rule_that_is_near_to_none_names_the_list() -> None:
    done = explain("\x1b[31mqqqq")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "underfed explain" in done.stderr


def test_a_reader_that_has_gone_ends_it_quietly() -> None:
    readable, writable = os.pipe()
    os.close(readable)
    command = [sys.executable, "-m", "underfed", "explain"]
    done = subprocess.run(command, stdout=writable, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writable)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_closed_stdout_is_no_error() -> None:
    command = [sys.executable, "-m", "underfed", "explain"]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(unbuffered: str) -> None:
    command = [sys.executable, "-m", "underfed", "explain"]
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=variables, check=False)
    assert done.returncode == 2
    assert (
        done.stderr
        == "underfed: cannot write to stdout: No space left on device; free some space or send it elsewhere\n"
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rules_page_has_all_sections_within_80_columns(rule: Rule) -> None:
    found = [heading for heading, body in sections(rule) if body]
    assert [heading for heading in HEADINGS if heading not in found] == []
    assert max(len(line) for line in page(rule).splitlines()) <= 80
    assert len(pattern(rule)) <= 160
    assert pattern(rule).endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_page_loses_no_word_of_the_docstring(rule: Rule) -> None:
    words = rule.doc.split()
    assert page(rule).split()[2 : 2 + len(pattern(rule).split())] == words[: len(pattern(rule).split())]
    shown = " ".join(page(rule).split())
    for heading, body in sections(rule):
        assert f"{heading} {' '.join(' '.join(body).split())}".strip() in shown
    kept = [pattern(rule), *(text for heading, body in sections(rule) for text in (heading, *body))]
    assert " ".join(kept).split() == words


def test_markup_in_a_docstring_stays_text_in_markdown() -> None:
    doc = "A *sentence* with <b>.\n\nFix\n    call __init__(a, *args) or `x_y * z`\n    second | line\n"
    rule = Rule(id="X999", name="n", stage="free", bound="host", numerics="exact", doc=doc, check=lambda evidence: None)
    text = markdown(rule)
    assert "A \\*sentence\\* with \\<b>." in text
    assert "call \\_\\_init\\_\\_(a, \\*args) or `x_y * z`\\\nsecond | line\n" in text
    assert len(table([rule]).splitlines()) == 3

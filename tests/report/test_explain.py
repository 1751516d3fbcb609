"""`underfed explain` against the rules that are registered, through the real command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import underfed
from underfed.audit.registry import RULES as AUDIT
from underfed.cli import main
from underfed.playbook.registry import RULES
from underfed.playbook.rule import Rule
from underfed.report import rulebook
from underfed.report.manual import number
from underfed.report.rulebook import Entry, entries, find_entry
from underfed.report.rulepage import markdown, page, parts, pattern, table

HEADINGS = ["What it looks like", "Why it costs", "Fix", "When it stays silent", "Not to be confused with"]


def explain(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "underfed", "explain", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


STAGES = ["box", "dataloader", "free", "precision", "kernels", "memory", "comms"]
ENTRIES = list(entries())
IDS = [entry.id for entry in ENTRIES]


def test_without_a_rule_all_are_listed_by_stage() -> None:
    done = explain()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    listed = [line.split()[:2] for line in lines if line.startswith("  ") and line[2] != " "]
    assert sorted(name for _, name in listed) == sorted({rule.name for rule in (*RULES, *AUDIT)})
    assert [line for line in lines if line and line[0] != " "] == STAGES
    inside: dict[str, list[str]] = {}
    for line in lines:
        if line and line[0] != " ":
            inside[line] = []
        elif line[2:3].strip():
            inside[list(inside)[-1]].append(line.split()[0])
    for rule in RULES:
        assert rule.id in inside[rule.stage]
    told = " ".join(done.stdout.split())
    for entry in ENTRIES:
        assert entry.pattern in told


def test_every_rule_of_playbook_and_audit_is_one_entry() -> None:
    assert sorted(IDS) == sorted({rule.id for rule in (*RULES, *AUDIT)})


def test_rules_that_only_the_audit_has_are_placed_by_hand() -> None:
    for entry in ENTRIES:
        assert entry.stage in STAGES
        if entry.seen is None and entry.id in rulebook._ONLY_IN_SOURCE:
            assert (entry.stage, entry.numerics) == rulebook._ONLY_IN_SOURCE[entry.id]


def test_a_rule_of_the_audit_that_no_table_places_stands_beside_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rulebook, "_ONLY_IN_SOURCE", {"X41": ("dataloader", "exact")})
    placed = {entry.id: (entry.stage, entry.numerics) for entry in entries()}
    assert placed["X42"] == ("dataloader", None)
    assert "numerics: not stated" in page(next(entry for entry in entries() if entry.id == "X42"))


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_a_rule_is_found_by_id_and_by_name_in_any_case(entry: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    words = (entry.id, entry.id.lower(), entry.name, entry.name.upper(), entry.name.replace("-", " "))
    for word in words:
        assert main(["explain", word]) == 0
        assert capsys.readouterr().out == page(entry)
        assert find_entry(word) == entry


def test_the_real_command_shows_that_page() -> None:
    assert explain("x40").stdout == page(next(entry for entry in ENTRIES if entry.id == "X40"))


def test_json_holds_what_the_page_says() -> None:
    told = json.loads(explain("--json").stdout)
    assert told["schema"] == "underfed.rules/1"
    assert [rule["id"] for rule in told["rules"]] == IDS
    for entry, rule in zip(ENTRIES, told["rules"], strict=True):
        shown = " ".join(page(entry).split())
        assert " ".join(rule["pattern"].split()) in shown
        assert {"Why it costs", "Fix", "When it stays silent"} <= set(rule["sections"])
        assert rule["stage"] in STAGES and rule["numerics"] in {"exact", "reorder", "precision", "semantic", None}
        for heading, text in rule["sections"].items():
            assert f"{heading} {' '.join(text.split())}" in shown
        assert (rule["in_source"] is not None) == ("audit" in rule["found_by"])
    one = json.loads(explain("t4", "--json").stdout)
    assert [rule["id"] for rule in one["rules"]] == ["T4"]


def test_a_number_that_advice_bears_leads_to_the_rules_behind_it() -> None:
    source = Path(underfed.__file__).parent / "observe/host/box/advice.py"
    shown = set(re.findall(r'rule="([A-Z]\d+)"', source.read_text(encoding="utf-8")))
    assert {"U40", "U8", "T21"} <= shown
    for name in shown:
        assert find_entry(name) or number(name), name
    told = explain("u40").stdout
    assert "T3 " in told and "underfed box" in told
    assert json.loads(explain("U40", "--json").stdout)["number"]["rules"] == ["T3", "X61"]


@pytest.mark.parametrize(
    ("wanted", "near"), [("T44", "T4 "), ("worker", "workers"), ("host-sync-in-stp", "X5 "), ("pandas row", "X40 ")]
)
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


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_a_rules_page_has_all_sections_within_80_columns(entry: Entry) -> None:
    found = [heading for heading, body in parts(entry) if body]
    wanted = HEADINGS if entry.seen else ["Why it costs", "Fix", "When it stays silent", "What a run shows"]
    assert [heading for heading in wanted if heading not in found] == []
    assert max(len(line) for line in page(entry).splitlines()) <= 80
    assert len(entry.pattern) <= 160
    assert entry.pattern.endswith(".")


@pytest.mark.parametrize("entry", ENTRIES, ids=IDS)
def test_a_page_loses_no_word_of_the_docstring(entry: Entry) -> None:
    rule = entry.seen or entry.written
    assert rule is not None
    words = rule.doc.split()
    first = pattern(rule.doc).split()
    assert page(entry).split()[2 : 2 + len(first)] == words[: len(first)]
    shown = " ".join(page(entry).split())
    for heading, body in parts(entry):
        assert f"{heading} {' '.join(' '.join(body).split())}".strip() in shown
    kept = " ".join([entry.pattern, *(text for heading, body in parts(entry) for text in (heading, *body))])
    assert " ".join(kept.split()).startswith(" ".join(words))
    if entry.written:
        assert entry.written.settle in shown


def test_markup_in_a_docstring_stays_text_in_markdown() -> None:
    doc = "A *sentence* with <b>.\n\nFix\n    call __init__(a, *args) or `x_y * z`\n    second | line\n"
    rule = Rule(id="X999", name="n", stage="free", bound="host", numerics="exact", doc=doc, check=lambda evidence: None)
    text = markdown(rule)
    assert "A \\*sentence\\* with \\<b>." in text
    assert "call \\_\\_init\\_\\_(a, \\*args) or `x_y * z`\\\nsecond | line\n" in text
    assert len(table([rule]).splitlines()) == 3

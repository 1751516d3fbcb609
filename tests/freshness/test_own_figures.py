"""The project's own figures carry stamps, and `make check` fails when one has aged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from underfed.playbook.figures import FIGURES
from underfed.report.rulebook import entries

ROOT = Path(__file__).parents[2]


def stale(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "underfed", "stale", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **env},
    )


def checked() -> list[str]:
    """The words that `make check` gives to `stale`, as make itself expands them."""
    done = subprocess.run(
        ["make", "-n", "-W", "Makefile", "check"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    [line] = [line for line in done.stdout.splitlines() if "underfed stale" in line]
    return line.split()[2:]


def newest(facts: list[dict]) -> tuple[int, int]:
    return max(tuple(map(int, fact["verified"].split("-")[:2])) for fact in facts)


@pytest.fixture(scope="module")
def facts() -> list[dict]:
    return json.loads(stale(*checked(), "--json").stdout)["facts"]


def test_make_check_looks_without_a_flag() -> None:
    assert checked() and not [word for word in checked() if word.startswith("-")]


def test_fresh_in_the_month_of_the_newest_stamp_and_aged_a_year_later(facts: list[dict]) -> None:
    year, month = newest(facts)
    assert stale(*checked(), "--today", f"{year}-{month:02}").returncode == 0
    done = stale(*checked(), "--today", f"{year + 1}-{month:02}")
    assert done.returncode == 1
    for file in ("README.md", "docs/read.md", "docs/figures.md", "src/underfed/playbook/figures.py"):
        assert re.search(rf"^{re.escape(file)}:\d+: verified .*12 months old \(limit 6\)", done.stdout, re.MULTILINE), (
            file
        )


def test_every_structured_fact_of_the_playbook_is_found(facts: list[dict]) -> None:
    found = [fact for fact in facts if fact["path"].endswith("playbook/figures.py")]
    assert [fact["fact"] for fact in found] == [figure.fact for figure in FIGURES]
    assert {figure.rule for figure in FIGURES} <= {entry.id for entry in entries()}


def test_one_aged_fact_among_fresh_ones_is_named(facts: list[dict], tmp_path: Path) -> None:
    for word in checked():
        (shutil.copytree if (ROOT / word).is_dir() else shutil.copy)(ROOT / word, tmp_path / Path(word).name)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    year, month = newest(facts)
    file = tmp_path / "playbook" / "figures.py"
    first, mark, rest = file.read_text().partition('verified="')
    assert mark
    file.write_text(f"{first}{mark}{year - 1}-{month:02}{rest[rest.index(chr(34)) :]}")
    done = stale(str(tmp_path), "--today", f"{year}-{month:02}")
    assert done.returncode == 1 and FIGURES[0].fact in done.stdout and "1 to check" in done.stdout


def test_the_limits_of_the_project(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "a.md").write_text(
        "An H200 has 132 SMs, verified 2001-01 (hardware)\n\nAn hour costs 3, verified 2026-01 (price)\n\n"
        "Stopping ends billing, verified 2026-01 (billing)\n\nRelease ends it, verified 2026-01 (teardown)\n"
    )
    verdicts = {
        today: [
            fact["verdict"] for fact in json.loads(stale(str(tmp_path), "--today", today, "--json").stdout)["facts"]
        ]
        for today in ("2026-02", "2026-03", "2026-05")
    }
    assert verdicts == {
        "2026-02": ["fresh", "fresh", "fresh", "fresh"],
        "2026-03": ["fresh", "stale", "fresh", "fresh"],
        "2026-05": ["fresh", "stale", "stale", "stale"],
    }


def test_a_probe_of_the_playbook_gives_the_written_answer() -> None:
    """The one figure that can be looked up here: torch's own default."""
    pytest.importorskip("torch")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    words = ("src/underfed/playbook", "--run-probes", "--json", "--max-age", "9999")
    facts = json.loads(stale(*words, PATH=path).stdout)["facts"]
    assert [fact["note"] for fact in facts if fact["note"]] == ["its probe agrees"]

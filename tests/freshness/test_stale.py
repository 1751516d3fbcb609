"""stale: what is a stamp, how old it is, and where the script it replaces falls short."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest

from underfed.freshness import judge as judging
from underfed.freshness.limits import Limits
from underfed.freshness.stamps import find_stamps


def stale(*words: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "underfed", "stale", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done


def facts(*words: object) -> list[dict]:
    return json.loads(stale(*words, "--json").stdout)["facts"]


@pytest.mark.parametrize(
    "text",
    [
        "Stopped boxes are released after 15 days (verified 2026-01).",
        "VERIFIED: 2026-01",
        "**Verified** 2026-01",
        "- fact: a\n  verified: 2026-01\n",
        'verified = "2026-01"',
        '{"verified": "2026-01"}',
        "x = 3  # verified on 2026-01",
        "| price | 3 | verified 2026-01 |",
        'Fact(value=3, verified="2026-01")',
    ],
)
def test_stamps_are_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.md").write_text(text)
    assert [fact["verified"] for fact in facts(tmp_path, "--today", "2026-02")] == ["2026-01"]


@pytest.mark.parametrize(
    "text",
    [
        "unverified 2026-01",
        "verified by hand; released 2026-01",
        "verified-boot 2026-01",
        "reverified 2026-01",
        "2026-01",
    ],
)
def test_what_is_no_stamp(tmp_path: Path, text: str) -> None:
    """The script takes any date on a line that says `verified`."""
    (tmp_path / "a.md").write_text(text)
    done = stale(tmp_path)
    assert done.returncode == 1 and "no stamps found" in done.stdout


@pytest.mark.parametrize(
    ("stamp", "today", "code"),
    [
        ("2026-01", "2026-07", 0),  # exactly the limit is fresh
        ("2026-01", "2026-08", 1),
        ("2026-01-31", "2026-07-31", 0),
        ("2026-01-30", "2026-07-31", 1),
        ("2025-12", "2026-01", 0),  # over the turn of the year
        ("2026-02", "2026-01", 1),  # future
        ("2026-01-02", "2026-01-01", 1),
        ("2026-01-31", "2026-01", 0),
        ("2026-13", "2026-12", 1),
        ("2026-02-30", "2026-03", 1),
        ("2026-1", "2026-03", 1),
    ],
)
def test_age(tmp_path: Path, stamp: str, today: str, code: int) -> None:
    (tmp_path / "a.md").write_text(f"a fact, verified {stamp}\n")
    assert stale(tmp_path, "--today", today).returncode == code


def test_classes_limits_and_several_dates_on_a_line(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.underfed.stale]\nmax-age = 4\n[tool.underfed.stale.classes]\nfirmware = 2\nlaw = 'never'\n"
    )
    (tmp_path / "a.md").write_text(
        "H200 costs 3 (released 2024-11), verified 2026-01 (price); SMs 132, verified 2020-01 (hardware)\n"
        "verified 2026-01 (firmware)\nverified 2000-01 (law)\nverified 2025-11\n"
    )
    found = {(f["class"], f["verdict"]) for f in facts(tmp_path / "a.md", "--today", "2026-03")}
    assert found == {
        ("price", "stale"),
        ("hardware", "fresh"),
        ("firmware", "fresh"),
        ("law", "fresh"),
        (None, "fresh"),
    }
    assert "stale" in {f["verdict"] for f in facts(tmp_path / "a.md", "--today", "2026-03", "--max-age", "3")}


@pytest.mark.parametrize(
    ("kind", "months"),
    [("price", 1), ("billing", 3), ("teardown", 3), ("hardware", None), ("constant", None), ("other", 6), ("", 6)],
)
def test_the_limit_of_each_class(tmp_path: Path, kind: str, months: int | None) -> None:
    """Exactly the limit is fresh, a month more is not."""
    (tmp_path / "a.md").write_text(f"a fact, verified 2020-01{f' ({kind})' if kind else ''}\n")
    for age, code in ((months or 60, 0), ((months or 60) + 1, 0 if months is None else 1)):
        today = f"{2020 + age // 12}-{age % 12 + 1:02d}"
        assert stale(tmp_path, "--today", today).returncode == code, (kind, today)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rst", "A fact (verified 2020-01)."),
        ("a.toml", 'fact = "x"\nverified = "2020-01"'),
        ("a.json", '{"fact": "x", "verified": "2020-01"}'),
        ("a.py", "X = 3  # verified 2020-01"),
        ("a.sh", "# verified 2020-01"),
        ("a.txt", "A fact, verified 2020-01"),
        ("a.yml", "fact: x\nverified: 2020-01"),
    ],
)
def test_kinds_of_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "a.bin").write_text("verified 2020-01")
    assert [Path(fact["path"]).name for fact in facts(tmp_path, "--today", "2021-01")] == [name]


def test_text_names_place_fact_and_age(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# top\n- id: auto-release\n  value: 15 days\n  verified: 2025-01\n")
    done = stale(tmp_path, "--today", "2026-01")
    assert f"{tmp_path}/a.yaml:4: verified 2025-01: 12 months old (limit 6): auto-release" in done.stdout
    done = stale(tmp_path, "--today", "2026-01", "--format", "github")
    assert done.stdout.startswith("::warning file=") and ",line=4::" in done.stdout


def test_probes_run_on_request_only(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "a.yaml").write_text(
        f"- fact: driver\n  value: 15\n  verified: 2026-01\n  probe: touch {ran}; echo 15\n"
        "- fact: other\n  value: 15\n  verified: 2026-01\n  probe: echo 16\n"
    )
    assert stale(tmp_path, "--today", "2026-01").returncode == 0 and not ran.exists()
    done = stale(tmp_path, "--today", "2026-01", "--run-probes")
    assert done.returncode == 1 and ran.exists() and "its probe says 16" in done.stdout and "1 to check" in done.stdout


def test_a_probe_that_does_not_end_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell's own end is not enough: what it started holds its output open."""
    monkeypatch.setattr(judging, "_PROBE_SECONDS", 1)
    line = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    [stamp] = find_stamps("a.yaml", f"- fact: driver\n  verified: 2026-01\n  probe: {line}\n")
    held = judging.probe(judging.judge(stamp, Limits(), date(2026, 1, 2)))
    assert held.verdict == "probe failed" and "gave no answer" in held.note
    state = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    deadline = time.monotonic() + 60
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] not in "ZX":
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.01)


@pytest.mark.parametrize("words", [["nowhere"], ["--today", "2026"], ["--today", "2026-13"], ["--max-age", "-1"]])
def test_usage(tmp_path: Path, words: list[str]) -> None:
    done = stale(*(words if words == ["nowhere"] else [tmp_path, *words]))
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1

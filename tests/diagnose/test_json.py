"""Diagnoses of real recordings keep to the JSON contract and read back as they were written."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.diagnosis import Diagnosis, from_json, json_schema, to_json
from underfed.recording.read import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "h200"
RECORDINGS = sorted(FIXTURES.glob("*.before"))
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def of(recording: Path, *, traced: bool = True) -> Diagnosis:
    return diagnose(read(recording), read_window if traced else None)


@pytest.mark.parametrize("traced", [True, False], ids=["traced", "not traced"])
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_it_keeps_to_the_schema_and_reads_back(recording: Path, traced: bool) -> None:
    found = of(recording, traced=traced)
    data = to_json(found)
    VALIDATOR.validate(json.loads(data))
    assert from_json(data) == found
    assert to_json(from_json(data)) == data


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_the_budget_of_a_real_run_adds_up(recording: Path) -> None:
    step = of(recording).step
    assert step.ms is not None and step.device_ms is not None
    waits = [getattr(step.wait_ms, name) for name in step.wait_ms.__struct_fields__]
    assert all(wait is not None and wait >= 0 for wait in waits)
    assert min(step.device_ms, step.ms) + sum(waits) == pytest.approx(step.ms, rel=1e-9)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_without_a_trace_nothing_is_claimed_of_the_device(recording: Path) -> None:
    found = of(recording, traced=False)
    assert found.verdict.bound == "unknown" and found.verdict.settle
    assert found.step.device_ms is None and found.step.wait_ms.launch is None
    assert found.limits


def test_the_shape_is_that_of_the_contract() -> None:
    found = json.loads(to_json(of(FIXTURES / "workers_zero.before")))
    assert found["schema"] == "underfed.diagnosis/1"
    assert set(found["verdict"]) >= {"bound", "cause", "confidence", "text"}
    assert set(found["step"]["wait_ms"]) == {"data", "transfer", "sync", "launch", "stall", "comms", "other"}
    first = found["findings"][0]
    assert set(first) >= {"rule", "name", "stage", "bound", "numerics", "gain", "where", "evidence", "fix"}
    assert "try" in first["fix"] and "try_" not in first["fix"]


@pytest.mark.parametrize("change", [{"bound": "gpu"}, {"confidence": 1}, {"text": None}])
def test_what_is_no_diagnosis_is_refused(change: dict[str, object]) -> None:
    found = json.loads(to_json(of(FIXTURES / "workers_zero.before")))
    found["verdict"] |= change
    assert not VALIDATOR.is_valid(found)
    with pytest.raises(msgspec.ValidationError):
        from_json(json.dumps(found).encode())

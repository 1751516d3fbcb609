"""The Diagnosis: what a run or a trace means. Its records are the JSON contract of every `--json`.

All times are milliseconds; those under `step` and in findings are per step. Null means not known, never zero.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

SCHEMA = "underfed.diagnosis/1"

Bound = Literal["data", "host", "compute", "comms", "unknown"]
Confidence = Literal["high", "medium", "low"]
Numerics = Literal["exact", "reorder", "precision", "semantic"]
Stage = Literal["box", "dataloader", "free", "precision", "kernels", "memory", "comms"]
Source = Literal["static", "host", "agent", "trace", "trial"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all records: immutable, and read back exactly as written."""


class Subject(Record, frozen=True, kw_only=True):
    """What was looked at. `steps` counts those that the figures rest on, `warmup_steps` those left out before them."""

    kind: Literal["run", "trace", "live"]
    paths: list[str]
    ranks: int | None = None
    steps: int | None = None
    warmup_steps: int | None = None
    device: str | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """The bound, the rule that names its cause, and the sentence that a colleague would say."""

    bound: Bound
    cause: str | None = None
    confidence: Confidence
    text: str
    settle: str | None = None
    """The one command or change that would settle it, where the confidence is low."""


class Waits(Record, frozen=True, kw_only=True):
    """Time in which the device has nothing to do, by cause, in ms a step; with device time it adds up to the step."""

    data: float | None = None
    transfer: float | None = None
    sync: float | None = None
    launch: float | None = None
    stall: float | None = None
    comms: float | None = None
    other: float | None = None


class Step(Record, frozen=True, kw_only=True):
    """One optimizer step: wall clock without a profiler, and where it goes, in ms."""

    ms: float | None = None
    device_ms: float | None = None
    device_share: float | None = None
    compute_ms: float | None = None
    copy_ms: float | None = None
    comms_ms: float | None = None
    exposed_comms_ms: float | None = None
    wait_ms: Waits = Waits()


class Device(Record, frozen=True, kw_only=True):
    """Exact totals of one device on one rank over a whole trace, in ms; the parts are unions over all streams."""

    id: int
    rank: int | None = None
    span_ms: float
    busy_ms: float
    compute_ms: float
    copy_ms: float
    comms_ms: float
    exposed_comms_ms: float


class Gain(Record, frozen=True, kw_only=True):
    """Factor by which a fix shortens the step: a bound that must hold, and a range where one can be predicted."""

    at_most: float
    expected: tuple[float, float] | None = None


class Observation(Record, frozen=True, kw_only=True):
    """One fact behind a finding, and where it comes from."""

    source: Source
    text: str
    value: float | None = None
    unit: str | None = None


class Fix(Record, frozen=True, kw_only=True):
    """What to change, as words and code, and how to try it without editing the script where that is possible."""

    text: str
    code: str | None = None
    try_: str | None = msgspec.field(default=None, name="try")


class Finding(Record, frozen=True, kw_only=True):
    """One rule that speaks to this run."""

    rule: str
    name: str
    stage: Stage
    bound: Bound
    numerics: Numerics
    summary: str
    gain: Gain | None = None
    where: str | None = None
    evidence: list[Observation] = []
    fix: Fix
    helps_now: bool = True
    """False where the rule is right but does not speak to what gates the step now; `note` says why."""
    note: str | None = None


class Diagnosis(Record, frozen=True, kw_only=True):
    """What a run or a trace means."""

    schema: str = SCHEMA
    subject: Subject
    verdict: Verdict
    step: Step = Step()
    device: list[Device] | None = None
    findings: list[Finding] = []
    limits: list[str] = []

    def __repr__(self) -> str:
        from underfed.library.show import diagnosis_line

        return f"<{diagnosis_line(self)}>"

    def __str__(self) -> str:
        from underfed.report.card import render

        return render(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        from underfed.library.show import diagnosis_html

        return {"text/plain": str(self), "text/html": diagnosis_html(self)}

    def _repr_html_(self) -> str:
        from underfed.library.show import diagnosis_html

        return diagnosis_html(self)


def to_json(diagnosis: Diagnosis) -> bytes:
    """Encode as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(diagnosis), indent=1) + b"\n"


def from_json(data: bytes) -> Diagnosis:
    """Decode what `to_json` wrote; raises msgspec.ValidationError on anything else."""
    return msgspec.json.decode(data, type=Diagnosis)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a Diagnosis."""
    schema = msgspec.json.schema(Diagnosis)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}

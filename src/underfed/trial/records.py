"""The records of a trial: the JSON of `underfed try --json`."""

from __future__ import annotations

from typing import Literal

import msgspec

from underfed.diagnosis import Numerics, Record

TRIAL = "underfed.trial/1"

Outcome = Literal["faster", "slower", "no-change", "crashed", "not-applied", "not-measured", "needs-edit"]
Numbers = Literal["same", "within-tolerance", "within-noise", "differ", "not-comparable", "other-training"]


class Ratio(Record, frozen=True, kw_only=True):
    """Baseline time over changed time with its 95 % interval; above 1 is faster."""

    value: float
    low: float
    high: float


class Run(Record, frozen=True, kw_only=True):
    """One process: when it came in the order, of which arm, and what it measured. Times in ms."""

    arm: str
    folder: str
    code: int | None
    steps: int
    warmup_steps: int
    step_ms: float | None = None
    mean_step_ms: float | None = None
    """Over all steady steps, rare long ones included."""
    before_steady_s: float | None = None
    """From torch's import to the steady part, less what its steps would have taken there: start, compilation."""
    ended_early: bool = False
    marks: tuple[str, ...] = ()
    """What disturbed it: throttling, waiting for a CPU, recompiles, allocator retries."""


class Truth(Record, frozen=True, kw_only=True):
    """Whether the numbers stayed true, by the change's class, and on what that rests."""

    numerics: Numerics
    numbers: Numbers
    ok: bool | None
    """None where it cannot be told."""
    text: str
    losses: int = 0
    first_gap: float | None = None
    """Relative difference of the first loss, from equal weights."""
    largest_gap: float | None = None
    gradients: int = 0
    """Of how many steps the norm of the gradients was compared."""
    gradient_gap: float | None = None
    """Largest relative difference of those norms."""
    seeds_differ_by: float | None = None
    """What the late losses of the baseline differ by when it is run with other seeds."""
    baseline_off: float | None = None
    """How far the baseline's losses lie from those of the same training in float64: root mean squares, relative."""
    changed_off: float | None = None
    batches: Literal["same", "differ", "unknown"] = "unknown"


class Arm(Record, frozen=True, kw_only=True):
    """One change against the baseline."""

    name: str
    rule: str | None
    outcome: Outcome
    text: str
    step_ms: float | None = None
    gain: Ratio | None = None
    detectable: float | None = None
    predicted: tuple[float, float] | None = None
    at_most: float | None = None
    extra_start_s: float | None = None
    pays_back_after_steps: int | None = None
    cost_per_1000_steps: float | None = None
    acted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    truth: Truth | None = None
    edit: str | None = None
    exit_code: int | None = None
    output: tuple[str, ...] = ()
    """The last lines of the run that crashed."""


class Trial(Record, frozen=True, kw_only=True):
    """What a change did, measured in runs that take turns with the baseline's."""

    schema: str = TRIAL
    folder: str
    device: str | None = None
    complete: bool = True
    """False where it was interrupted; what is here was measured all the same."""
    seed: int | None = None
    pairs: int
    baseline_step_ms: float | None = None
    baseline_cost_per_1000_steps: float | None = None
    noise_floor: float | None = None
    """Factor by which two runs of the baseline differ."""
    arms: tuple[Arm, ...] = ()
    runs: tuple[Run, ...] = ()
    limits: tuple[str, ...] = ()


def to_json(record: Trial) -> bytes:
    """Encode as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"

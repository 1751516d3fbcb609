"""What the view knows, and how it changes: values only, no clock, no file, no terminal. Everything is bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median

from underfed.diagnosis import Bound, Confidence

#: Points that a track keeps: more than the widest terminal shows.
POINTS = 300
#: Steps that the shown step time and rate rest on.
STEPS = 64
#: Verdict changes that are kept; all are counted.
CHANGES = 50


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A verdict as the view shows it. `at` is unix time in s; `parts` are shares of what `of` says."""

    at: float
    bound: Bound
    words: str
    confidence: Confidence
    text: str
    cause: str | None = None
    name: str = ""
    fix: str | None = None
    settle: str | None = None
    parts: tuple[tuple[str, float], ...] = ()
    of: str = "a step"
    step_ms: float | None = None
    device: str | None = None
    ranks: int | None = None

    @property
    def key(self) -> tuple[str, str, str | None]:
        """What makes a verdict another one; figures, wording and confidence do not."""
        return (self.bound, self.words.partition(" (")[0], self.cause)


@dataclass(frozen=True)
class Gauge:
    """One reading: `value` in the unit of `top`, the value that fills the scale (None: the largest one shown)."""

    name: str
    value: float | None
    text: str
    top: float | None = 1.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one look found: times of new steps in ms, in their order, and gauges. `at` is unix time in s."""

    at: float
    steps: tuple[float, ...] = ()
    gauges: tuple[Gauge, ...] = ()


@dataclass(frozen=True)
class Track:
    """A gauge over time, oldest first; None where nothing was read."""

    name: str
    values: tuple[float | None, ...]
    text: str
    top: float | None


@dataclass(frozen=True)
class Change:
    """A verdict that began."""

    at: float
    bound: Bound
    words: str
    cause: str | None


@dataclass(frozen=True, kw_only=True)
class State:
    """All that the view shows."""

    title: str
    hint: str = ""
    began: float
    at: float
    stepping: bool = False
    """Whether steps can be seen at all: from outside they cannot."""
    recent: tuple[float, ...] = ()
    stepped_at: float | None = None
    steps: int = 0
    step_track: tuple[float | None, ...] = ()
    tracks: tuple[Track, ...] = field(default=())
    judged: Judged | None = None
    changes: tuple[Change, ...] = ()
    changed: int = 0

    @property
    def step_ms(self) -> float | None:
        """Median of the last step times in ms."""
        return median(self.recent) if self.recent else None

    @property
    def rate(self) -> float | None:
        """Steps a second over the last steps; None where they took no time that can be told."""
        total = sum(self.recent)
        rate = 1000 * len(self.recent) / total if total > 0 else math.inf
        return rate if math.isfinite(rate) else None

    @property
    def since(self) -> float | None:
        """Unix time since when the verdict holds."""
        return self.changes[-1].at if self.changes else None


def read(state: State, reading: Reading) -> State:
    """Return the state after one look: a point more on every track, also where the look found nothing."""
    steps = tuple(step for step in reading.steps if step >= 0)
    point = median(steps) if steps else None
    return replace(
        state,
        at=max(state.at, reading.at),
        recent=(state.recent + steps)[-STEPS:],
        stepped_at=reading.at if steps else state.stepped_at,
        steps=state.steps + len(steps),
        step_track=(*state.step_track, point)[-POINTS:],
        tracks=_tracks(state.tracks, reading.gauges),
    )


def judge(state: State, judged: Judged) -> State:
    """Return the state after one verdict; a change is noted where it is another one than before."""
    after = replace(state, at=max(state.at, judged.at), judged=judged)
    if state.judged is not None and state.judged.key == judged.key:
        return after
    change = Change(judged.at, judged.bound, judged.key[1], judged.cause)
    return replace(after, changes=(*state.changes, change)[-CHANGES:], changed=state.changed + 1)


def _tracks(before: tuple[Track, ...], gauges: tuple[Gauge, ...]) -> tuple[Track, ...]:
    """Append the gauges; a track without one gets a gap and keeps its words, a new one starts where it was seen."""
    now = {gauge.name: gauge for gauge in gauges}
    after = []
    for track in before:
        gauge = now.pop(track.name, None)
        if gauge is None:
            after.append(replace(track, values=(*track.values, None)[-POINTS:]))
        else:
            after.append(Track(track.name, (*track.values, gauge.value)[-POINTS:], gauge.text, gauge.top))
    return (*after, *(Track(gauge.name, (gauge.value,), gauge.text, gauge.top) for gauge in now.values()))

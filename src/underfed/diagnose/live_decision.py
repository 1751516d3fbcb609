"""The answer of one question of the live verdict."""

from __future__ import annotations

from dataclasses import dataclass

from underfed.diagnose.live_sum import RankSum
from underfed.diagnosis import Bound, Confidence


@dataclass(frozen=True)
class Decision:
    """A bound with its words; `head` replaces the bound's name on the card, `about` is the rank that it rests on."""

    bound: Bound
    confidence: Confidence
    text: str
    head: str | None = None
    settle: str | None = None
    share: float | None = None
    about: RankSum | None = None
    why: str = ""

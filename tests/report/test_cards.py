"""Whole cards against the text under cards/; `python tests/report/test_cards.py` writes that anew, to read its diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.diagnosis import from_json
from underfed.report import card, first

CARDS = sorted((Path(__file__).parent / "cards").glob("*.json"))


def shown(path: Path) -> str:
    diagnosis = from_json(path.read_bytes())
    return first.render(diagnosis) + "=" * 80 + "\n" + card.render(diagnosis, recording="/data/recordings/1")


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_card_is_as_recorded(path: Path) -> None:
    assert shown(path) == path.with_suffix(".txt").read_text(encoding="ascii")


def test_there_are_cards() -> None:
    assert len(CARDS) >= 6


if __name__ == "__main__":
    for each in CARDS:
        each.with_suffix(".txt").write_text(shown(each), encoding="ascii")

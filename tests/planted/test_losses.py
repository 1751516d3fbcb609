"""The numbers of a training are bit for bit the same with and without underfed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from harness import HERE, run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        ("workers", "off"),
        ("dropout", "10"),
        pytest.param("mlp", "off", marks=pytest.mark.slow),
        pytest.param("mlp", "10", marks=pytest.mark.slow),
        pytest.param("workers", "10", marks=pytest.mark.slow),
        pytest.param("dropout", "off", marks=pytest.mark.slow),
    ],
)
def test_losses_are_the_same_to_the_last_bit(kind: str, window: str, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("not installed here: torch")
    words = [sys.executable, str(HERE / "losses.py"), kind]
    underfed = str(Path(sys.executable).with_name("underfed"))
    alone = run(words, tmp_path)
    seen = run([underfed, "run", "--window", window, "--out", str(tmp_path / "recording"), "--", *words], tmp_path)
    assert alone.code == seen.code == 0, seen.err[-2000:]
    assert len(alone.out.splitlines()) > 180
    assert seen.out == alone.out

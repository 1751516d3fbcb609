"""What NVML and GPM read on a real H200 under labelled runs: the device's part of the verdict is as the labels say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from underfed.diagnose.live_gpu import Gpu, device_of

FIXTURES = Path(__file__).parent.parent / "fixtures" / "h200"
LABELS = json.loads((FIXTURES / "labels.json").read_text())
#: A look of ten seconds takes about as many readings; the last ones of a recording are of its steady part.
LAST = 5


def recorded(name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (FIXTURES / f"{name}.before" / "host.jsonl").read_text().splitlines()]
    rows = [row for line in lines if line.get("k") == "host" for row in line.get("gpu") or [] if row.get("gpm")]
    # some recordings are older than the field's name
    return [{**row, "utilization": row.get("utilization", row.get("sm_util"))} for row in rows]


#: Shorter recordings end soon after their start, and their last readings are not of a steady part.
LONG = [name for name in sorted(LABELS) if len(recorded(name)) >= 16]


def readings(name: str) -> list[dict[str, Any]]:
    return recorded(name)[-LAST:]


def seen(name: str, gpm: bool = True) -> Gpu:
    rows = readings(name)
    fixed = {"name": "NVIDIA H200", "limit_w": 700.0, "max_sm_mhz": 1980}
    return Gpu(True, False, (device_of(0, fixed, rows if gpm else [{**row, "gpm": None} for row in rows]),))


@pytest.mark.parametrize("name", LONG)
def test_a_full_device_is_told_from_one_that_waits(name: str) -> None:
    gpu = seen(name)
    computes = LABELS[name]["class"] == "compute"
    assert gpu.full is computes
    assert gpu.idle is not computes
    assert gpu.sure
    assert not gpu.spins


@pytest.mark.parametrize("name", LONG)
def test_without_gpm_the_device_is_never_called_wrongly(name: str) -> None:
    gpu = seen(name, gpm=False)
    computes = LABELS[name]["class"] == "compute"
    assert not (gpu.full and not computes)
    assert not (gpu.idle and computes)
    assert not gpu.sure


def test_without_gpm_most_are_still_told() -> None:
    told = [name for name in LONG if (gpu := seen(name, gpm=False)).full or gpu.idle]
    assert len(told) > 0.75 * len(LONG)


def test_the_words_show_utilization_and_activity_beside_each_other() -> None:
    words = seen("empty_cache").words
    assert "utilization" in words
    assert "SM activity" in words


def test_a_card_that_answers_nothing_is_neither_full_nor_idle() -> None:
    gpu = Gpu(True, False, (device_of(0, {}, []),))
    assert (gpu.busy, gpu.full, gpu.idle) == (None, False, False)

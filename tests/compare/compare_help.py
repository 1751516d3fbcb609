"""Recordings written line by line, with step times whose truth is known, and `underfed compare` on them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from underfed.cli import main
from underfed.recording import records as r


def steps(
    rng: np.random.Generator,
    count: int,
    ms: float,
    *,
    noise: float = 0.03,
    carry: float = 0.6,
    drift: float = 0.02,
    between: float = 0.005,
) -> list[float]:
    """Step times of one run: its own level, a drift of up to `drift` over the run, and noise that carries over."""
    shocks = rng.normal(0, noise * np.sqrt(1 - carry**2), count + 60)
    level = np.zeros(count + 60)
    for at in range(1, count + 60):
        level[at] = carry * level[at - 1] + shocks[at]
    slope = rng.uniform(-drift, drift) * np.linspace(-0.5, 0.5, count)
    found = ms * np.exp(rng.normal(0, between) + slope + level[60:])
    return [float(value) for value in found]


def recording(
    folder: Path, walls: list[float], *, data: float = 0.0, batch: int = 32, torch: str = "2.8.0", damage: bytes = b""
) -> Path:
    """Write a recording of these step times in ms; `data` is the share of each that waits for input."""
    folder.mkdir(parents=True)
    (folder / "recording.json").write_text(
        json.dumps({"schema": "underfed.recording/1", "command": ["python", "t.py"]})
    )
    rows, end = [], 0
    for at, wall in enumerate(walls):
        ns = round(wall * 1e6)
        end += ns
        row = dict.fromkeys(r.STEP_COLUMNS, 0) | {"index": at, "kind": r.BY_OPTIMIZER, "end": end, "wall": ns}
        row |= {"data": round(data * ns), "backward": ns - round(data * ns), "fetches": 1}
        rows.append([row[name] for name in r.STEP_COLUMNS])
    lines: list[dict[str, Any]] = [
        {"k": "process", "pid": 7, "ppid": 1, "torch": torch, "python": "3.11.9", "clock": 1},
        {"k": "loader", "id": 1, "workers": 0, "batch": batch, "dataset": "Numbers", "length": 100},
        {"k": "facts", "t": 1, "threads": 2, "matmul_precision": "highest"},
        *({"k": "steps", "rows": rows[at : at + 50]} for at in range(0, len(rows), 50)),
        {"k": "end", "steps": len(rows)},
    ]
    optimizer = {"name": "SGD", "tensors": 2, "dtype": "torch.float32", "fused": None, "foreach": None}
    lines[2]["optimizers"] = [optimizer]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    (folder / "p7-1.jsonl").write_bytes(text[: len(text) // 2] + damage + text[len(text) // 2 :])
    return folder


@dataclass(frozen=True)
class Compared:
    """Exit code, page and what was said on stderr."""

    code: int
    page: str
    said: str

    @property
    def found(self) -> dict[str, Any]:
        return dict(json.loads(self.page))


def compared(*words: str | Path) -> Compared:
    """Run `underfed compare`."""
    page, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(page), contextlib.redirect_stderr(said):
        code = main(["compare", *map(str, words)])
    return Compared(code, page.getvalue(), said.getvalue())

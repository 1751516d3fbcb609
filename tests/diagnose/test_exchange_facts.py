"""Readings of the gradient exchange, put together: against hand-made lines whose answer is known."""

from __future__ import annotations

from pathlib import Path

import msgspec

from underfed.diagnose.gather import exchange_facts
from underfed.recording import records as r
from underfed.recording.read import read

HEAD = {"k": "process", "pid": 7, "ppid": 1, "role": "main", "clock": 0, "unix": 0}


def facts(folder: Path, *lines: dict[str, int]):
    rows = [HEAD, *({"k": "ddp", "compute": 1_000_000, **line} for line in lines)]
    (folder / "p7-1.jsonl").write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
    (log,) = read(folder).processes
    assert len(log.of(r.Ddp)) == len(lines)
    return exchange_facts(log, 0)


def test_passes_and_exchanges_are_counted_a_step(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        {"step": 1, "iteration": 1, "passes": 1, "exchanges": 1, "exchange": 9_000_000, "overlap": 0},
        {"step": 9, "iteration": 8, "passes": 16, "exchanges": 4, "optimizer_steps": 4,
         "exchange": 5_000_000, "overlap": 2_000_000},
    )  # fmt: skip
    assert (found.passes, found.times) == (4.0, 1.0)
    assert (found.total, found.exposed) == (5.0, 3.0)


def test_without_an_optimizer_a_step_is_one_backward_pass(tmp_path: Path) -> None:
    found = facts(
        tmp_path,
        *(
            {
                "step": n,
                "iteration": n,
                "passes": n + 1,
                "exchanges": n + 1,
                "exchange": 4_000_000,
                "overlap": 1_000_000,
            }
            for n in range(3, 11)
        ),
    )
    assert (found.passes, found.times) == (1.0, 1.0)
    assert (found.total, found.exposed) == (4.0, 3.0)

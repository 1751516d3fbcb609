"""Scripts that are scored from their kept recordings alone, in the form of tests/planted/expect.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "planted"))

from expect import MORE_WORKERS, Planted

FOLDER = Path(__file__).resolve().with_name("faults")
MORE = (
    Planted(
        script="blas_in_workers.py",
        bounds=("data",),
        rules=("X18",),
        fixed=("--blas", "1"),
        never=("T4", "T7", "U8"),
        never_said=(MORE_WORKERS,),
    ),
    Planted(
        script="pinned_workers.py",
        bounds=("data",),
        rules=("X15",),
        fixed=("--free",),
        never=("T4", "T7", "U8", "X18"),
        never_said=(MORE_WORKERS,),
    ),
    Planted(
        script="small_reads.py",
        bounds=("data",),
        rules=("U8", "U25", "T4"),
        fixed=("--together", "16"),
        store=("--latency-ms", "6"),
        never=("T8", "X18", "X15"),
    ),
)

"""Keep recordings of the planted scripts: `python bench/score/keep.py [NAME...]`, on a machine that does nothing else.

Each script runs once under `underfed run`, and once more without its fault and without underfed, for the true step.
Kept are the recording's lines, with absolute paths made relative, in one compressed JSON file a script, and the true
steps in ms with and without the fault.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

from reduce import anonymous

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "fixtures" / "planted"


def pack(recording: Path, file: Path) -> None:
    """Write the lines of a recording to one file; device traces are left out."""
    lines = {path.name: anonymous(path.read_text()) for path in sorted(recording.glob("*.json*")) if path.is_file()}
    lines.pop("diagnosis.json", None)
    text = json.dumps(lines, separators=(",", ":"), sort_keys=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def unpack(file: Path, folder: Path) -> None:
    """Write a kept recording into an empty folder."""
    for name, text in json.loads(gzip.decompress(file.read_bytes())).items():
        (folder / Path(name).name).write_text(text)


def main() -> int:
    """Run the command line."""
    sys.path.insert(0, str(ROOT / "tests" / "planted"))
    from expect import PLANTED
    from harness import bare, missing, watched

    wanted = set(sys.argv[1:])
    KEPT.mkdir(parents=True, exist_ok=True)
    steps_file = KEPT / "steps.json"
    steps = json.loads(steps_file.read_text()) if steps_file.is_file() else {}
    for one in PLANTED:
        if (wanted and one.id not in wanted) or missing(one) or one.exit_code:
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            (folder / "work").mkdir()
            watched(one, folder / "work", out=folder / "recording", json=folder / "d.json")
            if not (folder / "recording").is_dir():
                continue
            pack(folder / "recording", KEPT / f"{one.id}.json.gz")
            if one.fixed or one.fixed_store:
                times = [bare(one, folder / "work", fixed=fixed).step_ms for fixed in (False, True)]
                steps[one.id] = [None if ms is None else round(ms, 3) for ms in times]
        size = (KEPT / f"{one.id}.json.gz").stat().st_size
        print(f"{one.id:24s} {size / 1000:6.1f} kB  {steps.get(one.id)}", flush=True)
        steps_file.write_text(json.dumps(steps, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

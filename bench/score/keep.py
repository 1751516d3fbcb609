"""Keep recordings of the planted scripts: `python bench/score/keep.py [NAME...]`, on a machine that does nothing else.

Each script runs once under `underfed run`; kept are the recording's lines, with absolute paths made relative, in one
compressed JSON file a script. With --gains the scripts run without underfed, with and without their fault in turns, and
the true steps are kept in steps.json, in ms, where no other process took part of the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import sys
import tempfile
from pathlib import Path
from statistics import median

from reduce import anonymous

from underfed.observe.host.cpu import ticks

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "planted"))

import harness  # noqa: E402 - a folder of the tests
from expect import PLANTED as IN_TESTS  # noqa: E402
from expect import Planted  # noqa: E402
from harness import bare, missing, watched  # noqa: E402
from more_faults import FOLDER, MORE  # noqa: E402

PLANTED = (*IN_TESTS, *MORE)
#: Any other absolute path, such as the folder in which the script ran.
_PLACE = re.compile(r'"/(?:[^"/]*/)*([^"/]*)"')
KEPT = ROOT / "tests" / "fixtures" / "planted"
#: A turn counts where other processes took no more than this share of the machine's CPU time; else it is tried again.
_OTHERS = 0.10
_TRIES = 4


def pack(recording: Path, file: Path) -> None:
    """Write the lines of a recording to one file; device traces are left out."""
    files = [path for path in sorted(recording.glob("*.json*")) if path.is_file()]
    lines = {path.name: _PLACE.sub(r'"\1"', anonymous(path.read_text())) for path in files}
    lines.pop("diagnosis.json", None)
    text = json.dumps(lines, separators=(",", ":"), sort_keys=True)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def unpack(file: Path, folder: Path) -> None:
    """Write a kept recording into an empty folder."""
    for name, text in json.loads(gzip.decompress(file.read_bytes())).items():
        (folder / Path(name).name).write_text(text)


def _steps(planted: Planted) -> list[float] | None:
    """Step times in ms with and without the fault, in turns; None where other processes took part of the machine."""
    times: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for fixed in (False, True, True, False):
            for _ in range(_TRIES):
                before, own = ticks(), _own_s()
                ms = bare(planted, Path(folder), fixed=fixed).step_ms
                after = ticks()
                if ms is None or before is None or after is None:
                    return None
                busy = (after.all - after.idle - before.all + before.idle) / os.sysconf("SC_CLK_TCK")
                wall = (after.all - before.all) / os.sysconf("SC_CLK_TCK")
                if busy - (_own_s() - own) <= _OTHERS * wall:
                    times[fixed].append(ms)
                    break
            else:
                return None
    return [round(median(both), 3) for both in times.values()]


def _own_s() -> float:
    """CPU seconds of all that was started here and has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="scripts; all of them without any")
    parser.add_argument("--gains", action="store_true", help="time the scripts with and without the fault instead")
    given = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    steps_file = KEPT / "steps.json"
    for one in PLANTED:
        if (given.names and one.id not in given.names) or missing(one) or one.exit_code:
            continue
        harness.SCRIPTS = FOLDER if one in MORE else harness.HERE / "scripts"
        if given.gains:
            if one.rules and (one.fixed or one.fixed_store) and (found := _steps(one)) is not None:
                steps = json.loads(steps_file.read_text()) if steps_file.is_file() else {}
                steps_file.write_text(json.dumps({**steps, one.id: found}, indent=1, sort_keys=True) + "\n")
                print(f"{one.id:24s} {found[0]:8.1f} {found[1]:8.1f} ms {found[0] / found[1]:6.2f}x", flush=True)
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            (folder / "work").mkdir()
            watched(one, folder / "work", out=folder / "recording", json=folder / "d.json")
            if (folder / "recording").is_dir():
                pack(folder / "recording", KEPT / f"{one.id}.json.gz")
                print(f"{one.id:24s} {(KEPT / f'{one.id}.json.gz').stat().st_size / 1000:6.1f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

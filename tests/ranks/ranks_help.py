"""Starts scripts of several gloo ranks below torchrun, with and without underfed, and reads what was said of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parent / "scripts"
STEPS_LINE = re.compile(r"(\d+) steps in ([\d.]+) s")
#: Two spinning threads a rank on few cores turn 1 ms of computing into 10.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(ranks: int, script: str, options: str = "") -> list[str]:
    """Return the command as a user types it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*launcher, str(SCRIPTS / f"{script}.py"), *options.split()]


def bare_ms(ranks: int, script: str, options: str, folder: Path) -> float:
    """Return the true step in ms by the script's own clock, without underfed."""
    words = torchrun(ranks, script, options)
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    found = STEPS_LINE.search(done.stderr)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found is not None, done.stderr[-2000:]
    return 1e3 * float(found[2]) / int(found[1])


def watched(ranks: int, script: str, options: str, folder: Path) -> dict[str, Any]:
    """Run the script under `underfed run` and return its diagnosis."""
    file = folder / "diagnosis.json"
    underfed = [sys.executable, "-m", "underfed", "run", "--out", str(folder / "recording"), "--json", str(file)]
    words = [*underfed, "--", *torchrun(ranks, script, options)]
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(file.read_bytes())
    return found


def finding(diagnosis: dict[str, Any], rule: str) -> dict[str, Any] | None:
    """Return the finding of a rule, whether it helps now or not."""
    return next((one for one in diagnosis["findings"] if one["rule"] == rule), None)


def helping(diagnosis: dict[str, Any]) -> list[str]:
    """Return the rules that are said to help now, the first one first."""
    return [one["rule"] for one in diagnosis["findings"] if one["helps_now"]]


def promised(diagnosis: dict[str, Any], rule: str) -> float:
    """Return the gain that a rule is said to bring now, 1 for none: the low end where an interval is given."""
    found = finding(diagnosis, rule)
    if found is None or not found["helps_now"]:
        return 1.0
    gain = found["gain"] or {}
    return float(gain["expected"][0] if gain.get("expected") else gain.get("at_most", 1.0))


def crowded(diagnosis: dict[str, Any]) -> bool:
    """Tell whether the ranks had too few CPUs for themselves; underfed says so, and is then unsure on purpose."""
    return any("had no CPU for" in limit for limit in diagnosis["limits"])

"""`underfed run` and `underfed attach` on gloo ranks whose fault is known: bound, late rank, gain, and silence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from expect_ranks import SCENARIOS, Ranks
from ranks_help import ENVIRONMENT, bare_ms, crowded, finding, helping, promised, torchrun, watched

pytestmark = [pytest.mark.torch, pytest.mark.alone]
pytest.importorskip("torch")

EACH = [
    pytest.param(one, ranks, id=f"{one.id}-{ranks}", marks=[] if one.short and ranks == 2 else [pytest.mark.slow])
    for one in SCENARIOS
    for ranks in (2, 4)
]
#: A quarter is what two cores that serve ranks, launcher and exchange stray by from turn to turn.
STRAYS = 1.25
#: Ranks that share a few cores with the rest of the machine really wait for each other and for what they send; a fix
#: for less than this is no false alarm.
NOTABLE = 1.2


@pytest.mark.parametrize(("one", "ranks"), EACH)
def test_the_verdict_is_that_of_the_planted_fault(one: Ranks, ranks: int, tmp_path: Path) -> None:
    found = watched(ranks, one.script, one.options, tmp_path)
    verdict, said = found["verdict"], json.dumps(found, indent=1)
    assert found["subject"]["ranks"] == ranks
    # Who has no CPU waits for one inside its exchange as well, and is told so.
    never = set(one.never) - ({"T23"} if crowded(found) else set())
    assert {rule: promised(found, rule) for rule in never if promised(found, rule) >= NOTABLE} == {}, said
    if crowded(found) or (os.cpu_count() or 1) < ranks:
        # Who has no CPU waits for one inside its passes: no bound is sure then.
        assert verdict["bound"] in {*one.bounds, "compute", "comms"}, said
        assert not crowded(found) or verdict["bound"] in {"data", "unknown"} or verdict["confidence"] != "high", said
    else:
        assert verdict["bound"] in one.bounds, said
        assert not one.first or helping(found)[0] in one.first, said
    if one.late is None:
        assert "which the others wait for" not in verdict["text"], said
    else:
        assert f"rank {one.late}, which the others wait for" in verdict["text"], said
        late = finding(found, "X13")
        assert late is not None, said
        assert f"for rank {one.late} (it waits longer for input" in late["summary"], said
    if one.said and not crowded(found):
        assert one.said in said


@pytest.mark.slow
@pytest.mark.parametrize("one", [pytest.param(one, id=one.id) for one in SCENARIOS if one.fixed is not None])
def test_no_fix_gains_more_than_at_most(one: Ranks, tmp_path: Path) -> None:
    found = watched(2, one.script, one.options, tmp_path)
    assert one.rule is not None
    claimed = finding(found, one.rule)
    times: dict[str, list[float]] = {one.options: [], one.fixed or "": []}
    for options in (one.options, one.fixed or "", one.fixed or "", one.options):
        times[options].append(bare_ms(2, one.script, options, tmp_path))
    gain = median(times[one.options]) / median(times[one.fixed or ""])
    most = claimed["gain"]["at_most"] if claimed is not None else 1.0
    print(f"{one.id}: true {gain:.2f}, at most {most:.2f}, {times}")
    if crowded(found):
        pytest.skip("other programs take most of this machine's CPUs, and the step is not the script's own")
    assert gain <= most * STRAYS, f"{times}\n{json.dumps(claimed, indent=1)}"


@contextlib.contextmanager
def started(words: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start ranks below a launcher, wait until one is `ready`, and end them: launchers pass SIGTERM on to ranks."""
    with output.open("wb") as file:
        process = subprocess.Popen(words, env=ENVIRONMENT, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            while b"ready" not in output.read_bytes():
                assert process.poll() is None, output.read_text()
                time.sleep(0.05)
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_rank_that_leaves_out_a_backward_pass_is_missed_by_name(ranks: int, tmp_path: Path) -> None:
    script = Path(torchrun(ranks, "ddp_skips")[-1])
    line = next(at for at, text in enumerate(script.read_text().splitlines(), 1) if "# never set" in text)
    with started(torchrun(ranks, "ddp_skips"), tmp_path / "output") as process:
        time.sleep(1)
        file = tmp_path / "seen.json"
        words = [sys.executable, "-m", "underfed", "attach", "--json", str(file), str(process.pid), "--seconds", "4"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        assert process.poll() is None, "the run did not survive the look"
    seen: dict[str, Any] = json.loads(file.read_bytes())
    assert seen["live"]["headline"].startswith("hung"), done.stdout
    assert f"ddp_skips.py:{line}" in seen["verdict"]["text"], done.stdout
    assert seen["verdict"]["bound"] == "comms", done.stdout
    assert "rank 1 is not in it" in seen["verdict"]["text"], done.stdout
    assert done.stdout.count("where rank") == ranks

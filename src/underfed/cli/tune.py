"""`underfed tune`: search the loader's settings and the threads, in the unedited script and within its limits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.tune.session import Plan


def tune(
    *,
    budget: float = 300.0,
    steps: int = 60,
    memory: str | None = None,
    seed: int | None = None,
    out: Path | None = None,
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    command: Annotated[list[str], Parameter(parse=False)],
) -> int:
    """Find the settings that feed the loop: `underfed tune --budget 300 -- python train.py`.

    Searches workers, prefetch, pinning and threads under the CPU quota and the memory limit. A model of the loop, built
    from a first run, says what is worth a run; each run is ended early, at a step boundary, as those of `try` are. The
    batch is not searched: another batch is another training.

    For example:

        underfed tune --budget 300 -- python train.py

    Parameters
    ----------
    budget
        Seconds for all runs together; the first run may take two minutes even so.
    steps
        Steady steps that a run is measured for, at least.
    memory
        What the run may hold, such as 8G, where that is less than the cgroup and the machine have.
    seed
        Seeds torch, NumPy and random at the start of every run, so that losses can be compared.
    out
        Folder for the runs: new or empty. Default: a new one below $TMPDIR/underfed-UID.
    json
        File for the search as JSON; `-` is stdout, in place of the page.
    """
    from underfed.errors import UsageError
    from underfed.report.output import check_json
    from underfed.tune.session import Plan

    if not command:
        raise UsageError("tune: no command; write it after two dashes: underfed tune -- python train.py")
    if sys.platform != "linux":
        raise UsageError("tune: works on Linux only")
    if not 1 <= budget < 1e6:
        raise UsageError(f"tune: --budget {budget:g}: give seconds from 1 on")
    if steps < 5:
        raise UsageError(f"tune: --steps {steps}: give a number from 5 on")
    if seed is not None and not 0 <= seed < 2**63:
        raise UsageError(f"tune: --seed {seed}: give a number from 0 on")
    check_json("tune", json)
    plan = Plan(command=command, budget_s=budget, steps=steps, seed=seed, memory=_bytes(memory))
    return _searched(plan, out, json)


def _bytes(text: str | None) -> int | None:
    from underfed.errors import UsageError

    if text is None:
        return None
    number, unit = text.strip().upper().removesuffix("IB").removesuffix("B"), 1
    if number and number[-1] in "KMGT":
        unit = 1024 ** ("KMGT".index(number[-1]) + 1)
        number = number[:-1]
    try:
        value = float(number) * unit
    except ValueError:
        value = 0.0
    if not 1 <= value < 2**60:
        raise UsageError(f"tune: --memory {text!r}: give a size such as 8G")
    return int(value)


def _searched(plan: Plan, out: Path | None, json: Path | None) -> int:
    from underfed.errors import FINDINGS, OK, UNMEASURED
    from underfed.recording.place import new_folder
    from underfed.report.output import deliver
    from underfed.trial.process import end_as_by_ctrl_c
    from underfed.trial.session import progress
    from underfed.tune.conclude import conclude
    from underfed.tune.records import to_json
    from underfed.tune.session import Search
    from underfed.tune.show import tuning_lines

    end_as_by_ctrl_c()
    folder = new_folder(out)
    search = Search(plan=plan, folder=folder, say=progress)
    progress(f"runs go to {folder}; each starts the command anew and ends it early")
    code = OK
    try:
        search.run()
    except KeyboardInterrupt:
        code = 130
        progress("interrupted; what was measured so far:")
    found = conclude(search)
    (folder / "tuning.json").write_bytes(to_json(found))
    deliver("tune", tuning_lines(found), to_json(found), json)
    if code:
        return code
    if found.chosen == "nothing":
        return UNMEASURED
    return FINDINGS if any(point.truth is not None and point.truth.ok is False for point in found.points) else OK

"""`underfed compare`: two runs against each other, with a limit for CI."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter


def compare(
    a: str,
    b: str,
    /,
    *,
    fail_above: str | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Hold run B against run A: `underfed compare before/ after/ --fail-above 5%`.

    Says first whether both did the same work, then what changed in the budget of a step, and whether the difference is
    more than the runs' own noise.

    For example:

        underfed compare before/ after/
        underfed compare before/ after/ --fail-above 5%

    Parameters
    ----------
    a
        What it was before: the folder that `underfed run` printed, a folder of several of them (runs of the same
        thing), a folder of `underfed try` or its trial.json (its baseline, or another arm as PATH#ARM), or a trace.
    b
        What it is now.
    fail_above
        For CI, such as 5%: exit 1 with one line where B is slower than A by more than that beyond the noise, 3 where
        that cannot be decided, else 0.
    json
        Print the comparison as JSON.
    """
    from underfed.compare.judge import compare as judged
    from underfed.compare.read import side
    from underfed.compare.records import to_json
    from underfed.compare.show import comparison_lines
    from underfed.errors import FINDINGS, OK, UNMEASURED
    from underfed.report.output import put
    from underfed.report.page import say

    limit = _limit(fail_above)
    found = judged(side(a), side(b), limit)
    if json:
        say(to_json(found).decode())
    elif limit is None:
        put(comparison_lines(found))
    if found.ruling is None:
        return OK
    line = _ruled(found.ruling, found.text, 100 * (limit or 0.0), work=found.work)
    if not json:
        say(line)
    return {"pass": OK, "fail": FINDINGS, "undecided": UNMEASURED}[found.ruling]


def _limit(text: str | None) -> float | None:
    from underfed.errors import UsageError

    if text is None:
        return None
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 100 or not text.strip().endswith("%"):
        raise UsageError(f"compare: --fail-above {text!r}: give a percentage from 0% on, such as 5%")
    return value


def _ruled(ruling: str, text: str, limit: float, *, work: str) -> str:
    if ruling == "undecided":
        why = "not the same work, so the step times cannot be held against each other" if work == "different" else text
        if not why.startswith("cannot be decided"):
            why = f"cannot be decided: {why}"
        return f"undecided (limit {limit:g} %): {why}"
    return f"{ruling} (limit {limit:g} %): {text}"

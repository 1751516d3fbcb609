"""`underfed stale`: facts whose date has aged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from datetime import date

    from underfed.freshness.judge import Judged


def stale(
    paths: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    max_age: float | None = None,
    today: str | None = None,
    run_probes: bool = False,
    format: Literal["text", "json", "github"] = "text",
    json: bool = False,
) -> int:
    """Find facts whose `verified YYYY-MM` stamp has aged: `underfed stale docs README.md`.

    It says what to check again; it cannot say what is still true, except where a fact has a probe. Exit code 0: all
    stamps are within their limits; 1: one is old, in the future or impossible, or there is none; 2: usage.

    For example:

        underfed stale docs README.md
        underfed stale docs --max-age 12 --format github

    Parameters
    ----------
    paths
        Files, or folders whose text files are read.
    max_age
        Months for facts without a class; default 6, or `max-age` of [tool.underfed.stale] in pyproject.toml.
    today
        YYYY-MM or YYYY-MM-DD instead of the clock.
    run_probes
        Run the command in `probe: COMMAND` beside a fact and compare its answer.
    format
        text; json; github for annotations of a pull request.
    json
        The same as --format json.
    """
    from fnmatch import fnmatch

    from underfed.freshness.files import read_text, text_files
    from underfed.freshness.judge import judge, probe
    from underfed.freshness.limits import read_limits
    from underfed.freshness.stamps import find_stamps

    day, whole_month = _today(today)
    first = paths[0] if paths[0].is_dir() else paths[0].parent
    limits = read_limits(first, max_age)
    judged = []
    for file in dict.fromkeys(text_files(paths)):
        name = file.as_posix()
        text = None if any(fnmatch(name, glob) for glob in limits.exclude) else read_text(file)
        for stamp in find_stamps(name, text or ""):
            held = judge(stamp, limits, day, whole_month=whole_month)
            judged.append(probe(held) if run_probes else held)
    _print(judged, "json" if json else format, day)
    return 1 if not judged or any(one.bad for one in judged) else 0


def _today(text: str | None) -> tuple[date, bool]:
    import re
    from datetime import date

    from underfed.errors import UsageError

    if text is None:
        return date.today(), False
    match = re.fullmatch(r"(\d{4})-(\d\d)(?:-(\d\d))?", text, re.ASCII)
    try:
        if match:
            return date(int(match[1]), int(match[2]), int(match[3] or 1)), match[3] is None
    except ValueError:
        pass
    raise UsageError(f"stale: --today {text}: give YYYY-MM or YYYY-MM-DD")


def _print(judged: list[Judged], form: str, day: date) -> None:
    import json as encoder

    from underfed.carry.names import plural, shown
    from underfed.report.page import say

    bad = [one for one in judged if one.bad]
    none = "no stamps found: wrong path, or the stamps were dropped"
    if form == "json":
        document = {
            "schema": "underfed.stale/1",
            "today": day.isoformat(),
            "stamps": len(judged),
            "bad": len(bad),
            "facts": [one.as_json() for one in judged],
        }
        say(encoder.dumps(document))
        return
    if form == "github":
        for one in bad:
            level = "warning" if one.verdict == "stale" else "error"
            place = f"file={_escaped(one.stamp.path, ',:')},line={one.stamp.line}"
            say(f"::{level} {place}::{_escaped(f'{one.message()}: {one.stamp.fact}')}")
        if not judged:
            say(f"::error::{none}")
        return
    for one in bad:
        say(f"{shown(one.stamp.path)}:{one.stamp.line}: {one.message()}: {shown(one.stamp.fact)}")
    say(f"{plural(len(judged), 'stamp')}, {len(bad)} to check" if judged else none)


def _escaped(text: str, more: str = "") -> str:
    from underfed.carry.names import shown

    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return shown(text)

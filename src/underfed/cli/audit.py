"""`underfed audit`: what training code will be slow at, read and never run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from underfed.audit.config import Config
    from underfed.audit.finding import AuditFinding, Result, Sure


def audit(
    paths: Annotated[list[Path], Parameter(negative=())],
    /,
    *,
    fix: Annotated[bool, Parameter(negative=())] = False,
    unsafe_fixes: Annotated[bool, Parameter(negative=())] = False,
    diff: Annotated[bool, Parameter(negative=())] = False,
    sure: Literal["certain", "likely", "possible"] | None = None,
    select: str | None = None,
    ignore: str | None = None,
    recording: Annotated[Path | None, Parameter(name="--with")] = None,
    full: Annotated[bool, Parameter(negative=())] = False,
    format: Literal["text", "json", "sarif", "github"] = "text",
    json: Annotated[bool, Parameter(negative=())] = False,
    jobs: int | None = None,
) -> int:
    """Find slow patterns in training code without running it: `underfed audit train.py src/`.

    Exit code 0: nothing found; 1: findings, or a file that could not be read; 2: usage.

    For example:

        underfed audit train.py
        underfed audit src/ --diff
        underfed audit src/ --format github

    Parameters
    ----------
    paths
        Python files, notebooks, or folders of them.
    fix
        Apply the fixes that leave results the same to the bit.
    unsafe_fixes
        With --fix or --diff: also those that can change results or need a look.
    diff
        Show what --fix would change, and change nothing.
    sure
        The least sure findings to show: certain, likely (default) or possible.
    select
        Only these rules: T4,X5.
    ignore
        Not these rules.
    recording
        A recording of `underfed run`: ranks findings by what they cost there and folds away those that do not matter.
    full
        Show code, reason and evidence with each finding.
    format
        text, json, sarif or github.
    json
        The same as --format json.
    jobs
        Processes that judge files side by side; without it, as many as there are CPUs and the code is worth.
    """
    from underfed.audit.config import read_config
    from underfed.errors import UsageError

    if jobs is not None and jobs < 1:
        raise UsageError("audit: --jobs: give 1 or more")
    if unsafe_fixes and not (fix or diff):
        raise UsageError("audit: --unsafe-fixes goes with --fix or --diff")
    start = paths[0] if paths[0].is_dir() else paths[0].parent
    config = read_config(start, select=select, ignore=ignore, sure=sure)
    form = "json" if json else format
    try:
        return _audit(
            paths,
            config,
            fix=fix or diff,
            unsafe=unsafe_fixes,
            diff=diff,
            recording=recording,
            form=form,
            full=full,
            jobs=jobs or _cpus(),
        )
    except KeyboardInterrupt:
        return 130


#: Fixes that touch each other need another round; more than this means that two of them fight.
_ROUNDS = 5


def _audit(
    paths: list[Path],
    config: Config,
    *,
    fix: bool,
    unsafe: bool,
    diff: bool,
    recording: Path | None,
    form: str,
    full: bool,
    jobs: int,
) -> int:
    from underfed.audit.engine import judge
    from underfed.audit.fix import plan, write
    from underfed.audit.sources import load, modules_beside
    from underfed.report.page import say
    from underfed.report.text import clean

    fixed = 0
    for turn in range(_ROUNDS):
        sources, result = load(paths, config.exclude)
        _usable(result)
        judge(sources, result, config.rules, modules_beside(sources, paths), jobs=jobs)
        shown, hidden = _shown(result, config.sure, recording)
        changes = plan(sources, shown, unsafe=unsafe) if fix else []
        if diff:
            for one in changes:
                say(one.diff())
            return 1 if shown or result.unread else 0
        if not changes or turn == _ROUNDS - 1:
            break
        for one in changes:
            write(one)
            fixed += len(one.findings)
    if fixed:
        hidden.insert(0, f"{fixed} fixed")
    for unread in result.unread if form in {"json", "sarif"} else ():
        print(f"underfed: audit: {clean(unread.path)}: {clean(unread.reason)}", file=sys.stderr)
    _print(result, shown, hidden, form, full)
    return 1 if shown or result.unread else 0


def _cpus() -> int:
    from underfed.observe.host.cpu import effective_cpus

    return max(1, int(effective_cpus().usable or 1))


def _usable(result: Result) -> None:
    from underfed.errors import UsageError
    from underfed.report.text import clean

    if not result.files:
        raise UsageError("audit: no Python file or notebook there")
    if result.files == len(result.unread):
        first = result.unread[0]
        more = f" (and {result.files - 1} more like it)" if result.files > 1 else ""
        raise UsageError(f"audit: {clean(first.path)}: {clean(first.reason)}{more}")


def _shown(result: Result, sure: Sure, recording: Path | None) -> tuple[list[AuditFinding], list[str]]:
    from underfed.audit.finding import ORDER
    from underfed.carry.names import plural

    most = ORDER.index(sure)
    shown = [finding for finding in result.findings if ORDER.index(finding.sure) <= most]
    hidden = []
    if len(shown) < len(result.findings):
        count = len(result.findings) - len(shown)
        hidden.append(f"{plural(count, 'less sure finding')} not shown: --sure possible")
    if recording is not None:
        from underfed.audit.measured import rank

        shown, folded = rank(shown, recording)
        if folded:
            rules = ", ".join(sorted({finding.rule for finding in folded}))
            hidden.append(
                f"{plural(len(folded), 'finding')} folded away, because the run does not gain by them now: {rules}"
            )
    return shown, hidden


def _print(result: Result, shown: Sequence[AuditFinding], hidden: list[str], form: str, full: bool) -> None:
    import json as encoder

    import underfed
    from underfed.audit import show
    from underfed.report.page import say

    if form == "json":
        say(encoder.dumps(show.document(result, shown)))
    elif form == "sarif":
        say(encoder.dumps(show.sarif(result, shown, underfed.__version__)))
    elif form == "github":
        say(show.github(result, shown))
    else:
        say(show.text(result, shown, full=full, hidden=hidden))

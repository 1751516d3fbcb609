"""`underfed collect`: finished results into durable storage, every copy verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from underfed.carry.store import Store


def collect(
    src: Path,
    dst: str,
    /,
    *,
    marker: str = "best_metrics.json",
    take: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    all: bool = False,
    expect: Path | None = None,
    also: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    links: Literal["follow", "refuse"] = "follow",
    force: bool = False,
    check: bool = False,
    json: bool = False,
) -> int:
    """Copy the finished runs below SRC to DST and prove every copy: `underfed collect checkpoints /durable/results`.

    Each file is copied to a temporary name, made durable, renamed, read back from DST and compared by BLAKE3; then the
    run's manifest is written. A rerun copies only what differs. SRC is never changed. Exit code 0: everything expected
    is verified; 1: something is not; 2: it could not start.

    For example:

        underfed collect checkpoints /durable/results
        underfed collect checkpoints /durable/results --check

    Parameters
    ----------
    src
        Folder with the runs.
    dst
        Folder, or the URL of an object store (s3://bucket/path, gs://bucket/path; extra `cloud`).
    marker
        A folder is a finished run if a file in it matches this glob.
    take
        Files to take of each run, as globs; default: best checkpoint, metrics, protocol or config, log.
    all
        Take all files of each run.
    expect
        File with the names of the runs that must be there, one a line, `#` for comments.
    also
        File beside each run, from the run's parent folder, `{name}` for the run's name: `../logs/{name}.log`.
    links
        Follow links that stay inside SRC, or refuse all.
    force
        Where both sides have the same time and other bytes, take SRC's.
    check
        Copy nothing; say whether DST proves what is in SRC.
    json
        One JSON object on stdout instead of lines.
    """
    import json as encoder
    import sys

    from underfed.carry.collect import Options
    from underfed.carry.collect import collect as sweep_up
    from underfed.carry.runs import read_roster
    from underfed.carry.take import Choice
    from underfed.errors import UsageError
    from underfed.report.page import say

    if all and take:
        raise UsageError("collect: --all and --take exclude each other; give one")
    if not marker.strip("/"):
        raise UsageError("collect: --marker is empty; give the name of the file that says a run is finished")
    choice = Choice(tuple(take) if take else None, all, tuple(also or ()), links)
    options = Options(marker, choice, read_roster(expect) if expect else None, force, check)
    store = _store(src, dst)
    try:
        sweep = sweep_up(src, store, options, lambda run: None if json else say("\n".join(run.line())))
    except KeyboardInterrupt:
        print("underfed: collect: interrupted; run the same command again to go on", file=sys.stderr)
        return 1
    if json:
        say(encoder.dumps(sweep.as_json()))
        return sweep.exit_code
    from underfed.carry.names import shown

    for skip in sweep.skipped:
        say(f"{'FAILED' if skip.wrong else 'skipped':<9} {shown(skip.path)}  {skip.reason}")
    for name, reason in sweep.gaps:
        say(f"MISSING   {shown(name)}  {reason}")
    say("\n".join(sweep.summary()))
    return sweep.exit_code


def _store(src: Path, dst: str) -> Store:
    from underfed.carry.local import LocalStore
    from underfed.carry.remote_store import remote_store
    from underfed.errors import UsageError

    if "://" in dst:
        return remote_store(dst)
    if not dst:
        raise UsageError("collect: DST is empty; name a folder or a URL")
    target, source = Path(dst).resolve(), src.resolve()
    if target == source or source in target.parents or target in source.parents:
        raise UsageError(f"collect: {src} and {dst} lie inside one another; name a DST outside of SRC")
    return LocalStore(Path(dst))

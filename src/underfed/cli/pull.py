"""`underfed pull`: result folders home over a link that drops, every file verified."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def pull(
    src: str,
    dst: Path,
    /,
    *,
    workers: int = 1,
    check: bool = False,
    retry_for: float = 240.0,
    links: Literal["follow", "refuse"] = "follow",
    compress: bool = False,
    quiet: bool = False,
    json: bool = False,
) -> int:
    """Bring the folders in HOST:PATH to DST and prove every file: `underfed pull box:/durable/results results`.

    By the system's ssh and rsync, so aliases, jump hosts and keys work. Run it again to go on after an interruption.
    Nothing is changed on the far side. Exit code 0: all that is there is verified here; 1: something is not; 2: it
    could not start.

    For example:

        underfed pull box:/durable/results results
        underfed pull box:/durable/results results --workers 4

    Parameters
    ----------
    src
        HOST:PATH, with HOST as ssh knows it; PATH from the home folder unless it begins with a slash.
    dst
        Local folder; what else is in it stays.
    workers
        Folders that are fetched at once.
    check
        Fetch nothing; say whether DST proves what is there.
    retry_for
        Seconds for which a link that drops is tried again without anything coming.
    links
        Make links again that stay inside DST, or refuse all.
    compress
        Compress on the wire.
    quiet
        Print the last line and failures only.
    json
        One JSON object on stdout instead of lines.
    """
    import json as encoder
    import sys

    from underfed.carry.far import parse_address
    from underfed.carry.progress import Terminal
    from underfed.carry.pull import pull as bring
    from underfed.carry.unit_outcome import PullOptions
    from underfed.errors import UsageError
    from underfed.report.page import say

    if not 1 <= workers <= 64:
        raise UsageError(f"pull: --workers {workers}: give a number from 1 to 64")
    if not retry_for >= 0:
        raise UsageError(f"pull: --retry-for {retry_for}: give seconds from 0 on")
    address = parse_address(src)
    options = PullOptions(workers, check, retry_for, links, compress)
    try:
        with Terminal(lines=not json, quiet=quiet or json) as terminal:
            result = bring(address, dst, options, terminal)
    except KeyboardInterrupt:
        print("underfed: pull: interrupted; run the same command again to go on", file=sys.stderr)
        return 1
    if json:
        say(encoder.dumps(result.as_json()))
    else:
        say("\n".join(result.summary()[-1:] if quiet else result.summary()))
    return result.exit_code
